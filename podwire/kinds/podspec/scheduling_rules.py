"""Validation of scheduling: tolerations, topology spread, gates, resource claims, taints."""

from collections.abc import Sequence

from podwire.kinds.field_checks import Choice, Errors, Object, label_selector, named, positive
from podwire.kinds.podspec.affinity_rules import label_keys
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, Problem, duplicate, invalid, required

TAINT_EFFECTS = Choice(("NoSchedule", "PreferNoSchedule", "NoExecute"))
_TOLERATION_OPERATORS = Choice(("Equal", "Exists"))
_SCHEDULE_ACTIONS = Choice(("DoNotSchedule", "ScheduleAnyway"))
_NODE_POLICIES = Choice(("Honor", "Ignore"))


def tolerations(given: Sequence[Object], path: str, errors: Errors) -> None:
    for index, toleration in enumerate(given):
        _toleration(toleration, f"{path}[{index}]", errors)


def _toleration(toleration: Object, path: str, errors: Errors) -> None:
    key, operator = toleration.get("key"), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    if key:
        named(names.qualified_name, key, f"{path}.key", errors)
    elif operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(invalid(f"{path}.operator", operator, detail))
    if effect != "NoExecute" and toleration.get("tolerationSeconds") is not None:
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(invalid(f"{path}.effect", effect, detail))
    if operator in ("Equal", ""):
        if messages := names.label_value(value):
            errors.append(invalid(f"{path}.operator", value, ";".join(messages)))
    elif operator != "Exists":
        _TOLERATION_OPERATORS.check(operator, f"{path}.operator", errors)
    elif value:
        errors.append(invalid(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'"))
    if effect:
        TAINT_EFFECTS.check(effect, f"{path}.effect", errors)


def topology_spread(constraints: Sequence[Object], path: str, errors: Errors) -> None:
    last: dict[tuple[str, str], int] = {
        (given.get("topologyKey", ""), given.get("whenUnsatisfiable", "")): index
        for index, given in enumerate(constraints)
    }
    for index, constraint in enumerate(constraints):
        place = f"{path}[{index}]"
        key, action = constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", "")
        positive(constraint.get("maxSkew", 0), f"{place}.maxSkew", errors)
        if not key:
            errors.append(required(f"{place}.topologyKey", "can not be empty"))
        _SCHEDULE_ACTIONS.check(action, f"{place}.whenUnsatisfiable", errors)
        if last[key, action] > index:  # reported where it is repeated later
            errors.append(duplicate(f"{place}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        _min_domains(constraint.get("minDomains"), action, f"{place}.minDomains", errors)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if (value := constraint.get(policy)) is not None:
                _NODE_POLICIES.check(value, f"{place}.{policy}", errors)
        label_keys(constraint, place, errors)
        label_selector(constraint.get("labelSelector"), f"{place}.labelSelector", errors)


def _min_domains(domains: int | None, action: str, path: str, errors: Errors) -> None:
    if domains is None:
        return
    positive(domains, path, errors)
    if action != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        errors.append(invalid(path, domains, detail))


def scheduling_gates(gates: Sequence[Object], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        named(names.qualified_name, name, f"{path}[{index}]", errors)
        if name in seen:
            errors.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)


def readiness_gates(gates: Sequence[Object], path: str, errors: Errors) -> None:
    for index, gate in enumerate(gates):
        named(names.qualified_name, gate.get("conditionType", ""), f"{path}[{index}].conditionType", errors)


def resource_claims(claims: Sequence[Object], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        place, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            errors.append(required(f"{place}.name"))
        elif name in seen:
            errors.append(duplicate(f"{place}.name", name))
        else:
            named(names.dns_label, name, f"{place}.name", errors)
        seen.add(name)
        sources = [field for field in ("resourceClaimName", "resourceClaimTemplateName") if field in claim]
        if len(sources) == 2:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errors.append(invalid(place, claim, detail))
        elif not sources:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errors.append(invalid(place, claim, detail))
        for source in sources:
            named(names.dns_subdomain, claim[source], f"{place}.{source}", errors)


def taints(given: Sequence[Object], path: str, errors: Errors) -> None:
    """Taints of a node, unique by key and effect."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(given):
        place = f"{path}[{index}]"
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        named(names.qualified_name, key, f"{place}.key", errors)
        if messages := names.label_value(value):
            errors.append(invalid(f"{place}.value", value, ";".join(messages)))
        TAINT_EFFECTS.require(effect, f"{place}.effect", errors)
        if (key, effect) in seen:
            detail = "taints must be unique by key and effect pair"
            errors.append(FieldError(Problem.DUPLICATE, place, taint, detail))
        seen.add((key, effect))
