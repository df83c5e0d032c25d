"""Validation of FlowSchema and PriorityLevelConfiguration, with upstream's rules and words."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from podwire.kinds.builtin.flowcontrol import defaults
from podwire.kinds.field_checks import Errors, Object, named
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, duplicate, forbidden, invalid, not_supported, required

MAX_PRECEDENCE = 10_000
MAX_QUEUES = 10_000_000
HASH_BITS = 60
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
_NAMESPACE = "each member of this list must be '*' or a DNS-1123 label; "
_SUBJECTS = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
_FIXED_SCHEMAS = {obj["metadata"]["name"]: obj["spec"] for obj in defaults.flow_schemas()}
_FIXED_LEVELS = {obj["metadata"]["name"]: obj["spec"] for obj in defaults.priority_levels()}


def flow_schema(obj: Object) -> list[FieldError]:
    errors: Errors = []
    name, spec = obj["metadata"].get("name", ""), obj.get("spec") or {}
    precedence = spec.get("matchingPrecedence") or 0
    if precedence <= 0:
        errors.append(invalid("spec.matchingPrecedence", precedence, "must be a positive value"))
    if precedence > MAX_PRECEDENCE:
        errors.append(invalid("spec.matchingPrecedence", precedence, f"must not be greater than {MAX_PRECEDENCE}"))
    if precedence == 1 and name != defaults.EXEMPT:
        detail = "only the schema named 'exempt' may have matchingPrecedence 1"
        errors.append(invalid("spec.matchingPrecedence", precedence, detail))
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type") not in ("ByNamespace", "ByUser"):
        errors.append(not_supported("spec.distinguisherMethod.type", method, ("ByNamespace", "ByUser")))
    level = (spec.get("priorityLevelConfiguration") or {}).get("name", "")
    if level:
        named(names.dns_subdomain, level, "spec.priorityLevelConfiguration.name", errors)
    else:
        errors.append(required("spec.priorityLevelConfiguration.name", "must reference a priority level"))
    for index, rule in enumerate(spec.get("rules") or ()):
        _rule(rule, f"spec.rules[{index}]", errors)
    if name in defaults.MANDATORY and spec != _FIXED_SCHEMAS[name]:
        errors.append(invalid("spec", spec, f"spec of '{name}' must equal the fixed value"))
    _conditions(obj, errors)
    return errors


def _rule(rule: Object, path: str, errors: Errors) -> None:
    subjects = rule.get("subjects") or ()
    if not subjects:
        errors.append(required(f"{path}.subjects", "subjects must contain at least one value"))
    for index, subject in enumerate(subjects):
        _subject(subject, f"{path}.subjects[{index}]", errors)
    resources, paths = rule.get("resourceRules") or (), rule.get("nonResourceRules") or ()
    if not resources and not paths:
        errors.append(required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
    for index, entry in enumerate(resources):
        _resource_rule(entry, f"{path}.resourceRules[{index}]", errors)
    for index, entry in enumerate(paths):
        _path_rule(entry, f"{path}.nonResourceRules[{index}]", errors)


def _subject(subject: Object, path: str, errors: Errors) -> None:
    kind = subject.get("kind", "")
    if kind not in _SUBJECTS:
        errors.append(not_supported(f"{path}.kind", kind, sorted(_SUBJECTS)))
        return
    own = _SUBJECTS[kind]
    given = subject.get(own)
    if given is None:
        errors.append(required(f"{path}.{own}", f"{own} is required when subject kind is '{kind}'"))
    else:
        name = given.get("name", "")
        if not name:
            errors.append(required(f"{path}.{own}.name"))
        elif kind == "ServiceAccount" and name != "*":
            named(names.dns_subdomain, name, f"{path}.{own}.name", errors)
        if kind == "ServiceAccount":
            if namespace := given.get("namespace", ""):
                named(names.dns_label, namespace, f"{path}.{own}.namespace", errors)
            else:
                errors.append(required(f"{path}.{own}.namespace", "must specify namespace for service account"))
    for other_kind, other in _SUBJECTS.items():
        if other != own and subject.get(other) is not None:
            errors.append(forbidden(f"{path}.{other}", f"{other} is forbidden when subject kind is not '{other_kind}'"))


def _resource_rule(rule: Object, path: str, errors: Errors) -> None:
    _verbs(rule, path, errors)
    _members(rule, path, "apiGroups", "resource rules must supply at least one api group", "api groups", errors)
    _members(rule, path, "resources", "resource rules must supply at least one resource", "resources", errors)
    namespaces = rule.get("namespaces") or ()
    if not namespaces and not rule.get("clusterScope"):
        detail = "resource rules that are not cluster scoped must supply at least one namespace"
        errors.append(required(f"{path}.namespaces", detail))
    elif "*" in namespaces:
        _alone(namespaces, f"{path}.namespaces", "namespaces", errors)
    else:
        for index, namespace in enumerate(namespaces):
            for message in names.dns_label(namespace):
                errors.append(invalid(f"{path}.namespaces[{index}]", namespace, _NAMESPACE + message))


def _path_rule(rule: Object, path: str, errors: Errors) -> None:
    _verbs(rule, path, errors)
    urls = rule.get("nonResourceURLs") or ()
    if not urls:
        errors.append(required(f"{path}.nonResourceURLs", "nonResourceURLs must contain at least one value"))
    elif "*" in urls:
        _alone(urls, f"{path}.nonResourceURLs", "non-resource URLs", errors)
    else:
        for index, url in enumerate(urls):
            if problem := _url_problem(url):
                errors.append(invalid(f"{path}.nonResourceURLs[{index}]", url, problem))


def _url_problem(url: str) -> str:
    if not url:
        return "must not be empty"
    if url == "/":
        return ""
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    if "*" in url and (url.count("*") > 1 or not url.endswith("/*")):
        return "wildcard can only do suffix matching"
    return ""


def _verbs(rule: Object, path: str, errors: Errors) -> None:
    verbs = rule.get("verbs") or ()
    if not verbs:
        errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
    elif "*" in verbs:
        _alone(verbs, f"{path}.verbs", "verbs", errors)
    elif not set(verbs) <= set(VERBS):
        errors.append(not_supported(f"{path}.verbs", verbs, VERBS))


def _members(rule: Object, path: str, key: str, missing: str, plural: str, errors: Errors) -> None:
    values = rule.get(key) or ()
    if not values:
        errors.append(required(f"{path}.{key}", missing))
    elif "*" in values:
        _alone(values, f"{path}.{key}", plural, errors)


def _alone(values: Sequence[str], path: str, plural: str, errors: Errors) -> None:
    if len(values) > 1:
        errors.append(invalid(path, values, f"if '*' is present, must not specify other {plural}"))


def priority_level(obj: Object) -> list[FieldError]:
    errors: Errors = []
    name, spec = obj["metadata"].get("name", ""), obj.get("spec") or {}
    kind = spec.get("type", "")
    if (name == defaults.EXEMPT) != (kind == "Exempt"):
        errors.append(invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'"))
    if kind == "Exempt":
        if spec.get("limited") is not None:
            errors.append(forbidden("spec.limited", "must be nil if the type is not Limited"))
        if (exempt := spec.get("exempt")) is not None:
            _shares(exempt, "spec.exempt", errors)
    elif kind == "Limited":
        if spec.get("exempt") is not None:
            errors.append(forbidden("spec.exempt", "must be nil if the type is Limited"))
        if (limited := spec.get("limited")) is None:
            errors.append(required("spec.limited", "must not be empty when type is Limited"))
        else:
            _limited(limited, errors)
    elif not kind:
        errors.append(required("spec.type"))
    else:
        errors.append(not_supported("spec.type", kind, ("Exempt", "Limited")))
    _mandatory_level(name, spec, errors)
    _conditions(obj, errors)
    return errors


def _mandatory_level(name: str, spec: Mapping[str, Any], errors: Errors) -> None:
    if name == defaults.EXEMPT and {**spec, "exempt": None} != {**_FIXED_LEVELS[name], "exempt": None}:
        detail = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"
        errors.append(invalid("spec", spec, detail))
    if name == defaults.CATCH_ALL and spec != _FIXED_LEVELS[name]:
        errors.append(invalid("spec", spec, "spec of 'catch-all' must equal the fixed value"))


def _shares(part: Object, path: str, errors: Errors) -> None:
    shares, lendable = part.get("nominalConcurrencyShares") or 0, part.get("lendablePercent") or 0
    if shares < 0:
        errors.append(invalid(f"{path}.nominalConcurrencyShares", shares, "must be a non-negative integer"))
    if not 0 <= lendable <= 100:
        errors.append(invalid(f"{path}.lendablePercent", lendable, "must be between 0 and 100, inclusive"))


def _limited(limited: Object, errors: Errors) -> None:
    _shares(limited, "spec.limited", errors)
    borrowing = limited.get("borrowingLimitPercent") or 0
    if borrowing < 0:
        detail = "if specified, must be a non-negative integer"
        errors.append(invalid("spec.limited.borrowingLimitPercent", borrowing, detail))
    response, path = limited.get("limitResponse") or {}, "spec.limited.limitResponse"
    kind, queuing = response.get("type", ""), response.get("queuing")
    if kind == "Reject":
        if queuing is not None:
            errors.append(forbidden(f"{path}.queuing", "must be nil if limited.limitResponse.type is not Limited"))
    elif kind == "Queue":
        if queuing is None:
            detail = "must not be empty if limited.limitResponse.type is Limited"
            errors.append(required(f"{path}.queuing", detail))
        else:
            _queuing(queuing, f"{path}.queuing", errors)
    elif not kind:
        errors.append(required(f"{path}.type"))
    else:
        errors.append(not_supported(f"{path}.type", kind, ("Queue", "Reject")))


def _queuing(queuing: Object, path: str, errors: Errors) -> None:
    queues, hand = queuing.get("queues") or 0, queuing.get("handSize") or 0
    length = queuing.get("queueLengthLimit") or 0
    if length <= 0:
        errors.append(invalid(f"{path}.queueLengthLimit", length, "must be positive"))
    if queues <= 0:
        errors.append(invalid(f"{path}.queues", queues, "must be positive"))
    elif queues > MAX_QUEUES:
        errors.append(invalid(f"{path}.queues", queues, f"must not be greater than {MAX_QUEUES}"))
    if hand <= 0:
        errors.append(invalid(f"{path}.handSize", hand, "must be positive"))
    elif hand > queues:
        errors.append(invalid(f"{path}.handSize", hand, f"should not be greater than queues ({queues})"))
    elif queues <= MAX_QUEUES and _entropy(queues, hand) > HASH_BITS:
        detail = (
            f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        )
        errors.append(invalid(f"{path}.handSize", hand, detail))


def _entropy(queues: int, hand: int) -> float:
    """The bits that choose a hand; a hand beyond sixty cards always takes more than there are."""
    if hand > HASH_BITS:
        return math.inf if queues > 1 else 0
    return math.ceil(sum(math.log2(queues - card) for card in range(hand)))


def _conditions(obj: Object, errors: Errors) -> None:
    seen = set()
    for index, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
        kind = condition.get("type", "")
        if kind in seen:
            errors.append(duplicate(f"status.conditions[{index}].type", kind))
        seen.add(kind)
        if not kind:
            errors.append(required(f"status.conditions[{index}].type"))
