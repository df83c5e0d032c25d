"""MatchResources of a policy or binding: rules for resources, and selectors. Webhooks have the same rules."""

from collections.abc import Sequence

from podwire.kinds.field_checks import Choice, Errors, Object, label_selector, named
from podwire.objects import names
from podwire.protocols.k8sapi.status import duplicate, invalid, required

_MATCH_POLICIES = Choice(("Equivalent", "Exact"))
_OPERATIONS = Choice(("*", "CONNECT", "CREATE", "DELETE", "UPDATE"))
_SCOPES = Choice(("*", "Cluster", "Namespaced"))


def match_resources(given: Object, path: str, errors: Errors) -> None:
    _MATCH_POLICIES.require(given.get("matchPolicy"), f"{path}.matchPolicy", errors)
    for selector in ("namespaceSelector", "objectSelector"):
        if given.get(selector) is None:
            errors.append(required(f"{path}.{selector}"))
        label_selector(given.get(selector), f"{path}.{selector}", errors)
    for word in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(given.get(word) or ()):
            _named_rule(rule, f"{path}.{word}[{index}]", errors)


def _named_rule(rule: Object, path: str, errors: Errors) -> None:
    _names(rule.get("resourceNames") or (), f"{path}.resourceNames", errors)
    rule_errors(rule, path, errors)


def rule_errors(rule: Object, path: str, errors: Errors) -> None:
    """Checks operations and resources of a rule."""
    operations = rule.get("operations") or ()
    _some(operations, f"{path}.operations", "operations", errors)
    for index, operation in enumerate(operations):
        _OPERATIONS.check(operation, f"{path}.operations[{index}]", errors)
    _some(rule.get("apiGroups") or (), f"{path}.apiGroups", "API groups", errors)
    versions = rule.get("apiVersions") or ()
    _some(versions, f"{path}.apiVersions", "API versions", errors)
    for index, version in enumerate(versions):
        if not version:
            errors.append(required(f"{path}.apiVersions[{index}]"))
    _resources(rule.get("resources") or (), f"{path}.resources", errors)
    if rule.get("scope") is not None:
        _SCOPES.check(rule["scope"], f"{path}.scope", errors)


def _names(given: Sequence[str], path: str, errors: Errors) -> None:
    for index, name in enumerate(given):
        named(names.path_segment, name, f"{path}[{index}]", errors)
        if name in given[:index]:
            errors.append(duplicate(f"{path}[{index}]", name))


def _some(given: Sequence[str], path: str, what: str, errors: Errors) -> None:
    """Checks a list that needs at least one entry, and in which `*` stands alone."""
    if not given:
        errors.append(required(path))
    elif len(given) > 1 and "*" in given:
        errors.append(invalid(path, given, f"if '*' is present, must not specify other {what}"))


def _resources(given: Sequence[str], path: str, errors: Errors) -> None:
    """Checks resources and subresources, none of which another entry covers already."""
    if not given:
        errors.append(required(path))
    errors += [required(f"{path}[{index}]") for index, resource in enumerate(given) if not resource]
    _parts(given, path, errors)
    if len(given) > 1 and "*/*" in given:
        errors.append(invalid(path, given, "if '*/*' is present, must not specify other resources"))
    if "*" in given and any(resource not in ("", "*") and "/" not in resource for resource in given):
        detail = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid(path, given, detail))


def _parts(given: Sequence[str], path: str, errors: Errors) -> None:
    """Rejects a subresource that an earlier `resource/*` or `*/subresource` covers."""
    whole: set[str] = set()
    everywhere: set[str] = set()
    for index, resource_path in enumerate(given):
        resource, slash, part = resource_path.partition("/")
        if not slash:
            continue
        for known, word, shown in ((whole, resource, f"{resource}/*"), (everywhere, part, f"*/{part}")):
            if word in known:
                errors.append(
                    invalid(
                        f"{path}[{index}]", resource_path, f"if '{shown}' is present, must not specify {resource_path}"
                    )
                )
        if part == "*":
            whole.add(resource)
        if resource == "*":
            everywhere.add(part)
