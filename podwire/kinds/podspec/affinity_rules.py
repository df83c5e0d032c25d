"""Affinities of a pod to nodes and to other pods, and the node selectors that they are made of."""

from collections.abc import Callable, Mapping, Sequence

from podwire.kinds.field_checks import Errors, Object, label_selector, named, operator_values
from podwire.objects import names
from podwire.protocols.k8sapi.status import forbidden, invalid, required

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

_NODE_FIELDS: Mapping[str, Callable[[str], list[str]]] = {"metadata.name": names.dns_subdomain}


def affinity(given: Object, path: str, errors: Errors) -> None:
    if (node := given.get("nodeAffinity")) is not None:
        _node_affinity(node, f"{path}.nodeAffinity", errors)
    for kind in ("podAffinity", "podAntiAffinity"):
        if (pods := given.get(kind)) is not None:
            _pod_affinity(pods, f"{path}.{kind}", errors)


def _node_affinity(given: Object, path: str, errors: Errors) -> None:
    if (selector := given.get(_REQUIRED)) is not None:
        node_selector(selector, f"{path}.{_REQUIRED}", errors)
    for index, term in enumerate(given.get(_PREFERRED) or ()):
        place = f"{path}.{_PREFERRED}[{index}]"
        _weight(term, place, errors)
        # values that no label can have are accepted: such a preference never matches
        _term(term.get("preference") or {}, f"{place}.preference", errors, check_values=False)


def node_selector(selector: Object, path: str, errors: Errors) -> None:
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        errors.append(required(f"{path}.nodeSelectorTerms", "must have at least one node selector term"))
        return
    for index, term in enumerate(terms):
        _term(term, f"{path}.nodeSelectorTerms[{index}]", errors)


def _term(term: Object, path: str, errors: Errors, *, check_values: bool = True) -> None:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        _label_requirement(expression, f"{path}.matchExpressions[{index}]", errors, check_values=check_values)
    for index, field in enumerate(term.get("matchFields") or ()):
        _field_requirement(field, f"{path}.matchFields[{index}]", errors)


def _label_requirement(requirement: Object, path: str, errors: Errors, *, check_values: bool) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator not in ("Gt", "Lt"):
        operator_values(operator, values, path, errors)
    elif len(values) != 1:
        detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        errors.append(required(f"{path}.values", detail))
    named(names.qualified_name, requirement.get("key", ""), f"{path}.key", errors)
    if check_values:
        for index, value in enumerate(values):
            named(names.label_value, value, f"{path}.values[{index}]", errors)


def _field_requirement(requirement: Object, path: str, errors: Errors) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator not in ("In", "NotIn"):
        errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.append(required(f"{path}.values", detail))
    key = requirement.get("key", "")
    if (check := _NODE_FIELDS.get(key)) is None:
        errors.append(invalid(f"{path}.key", key, "not a valid field selector key"))
        return
    for index, value in enumerate(values):
        named(check, value, f"{path}.values[{index}]", errors)


def _pod_affinity(given: Object, path: str, errors: Errors) -> None:
    for index, term in enumerate(given.get(_REQUIRED) or ()):
        _pod_term(term, f"{path}.{_REQUIRED}[{index}]", errors)
    for index, weighted in enumerate(given.get(_PREFERRED) or ()):
        place = f"{path}.{_PREFERRED}[{index}]"
        _weight(weighted, place, errors)
        _pod_term(weighted.get("podAffinityTerm") or {}, f"{place}.podAffinityTerm", errors)


def _weight(term: Object, path: str, errors: Errors) -> None:
    weight = term.get("weight", 0)
    if not 1 <= weight <= 100:
        errors.append(invalid(f"{path}.weight", weight, "must be in the range 1-100"))


def _pod_term(term: Object, path: str, errors: Errors) -> None:
    label_selector(term.get("labelSelector"), f"{path}.labelSelector", errors)
    label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector", errors)
    for namespace in term.get("namespaces") or ():
        named(names.dns_label, namespace, f"{path}.namespace", errors)
    label_keys(term, path, errors)
    topology_key = term.get("topologyKey", "")
    if not topology_key:
        errors.append(required(f"{path}.topologyKey", "can not be empty"))
    named(names.qualified_name, topology_key, f"{path}.topologyKey", errors)


def label_keys(term: Object, path: str, errors: Errors) -> None:
    """Checks `matchLabelKeys` and `mismatchLabelKeys`, whose values are those of the pod itself."""
    selector = term.get("labelSelector")
    match: Sequence[str] = term.get("matchLabelKeys") or ()
    mismatch: Sequence[str] = term.get("mismatchLabelKeys") or ()
    if not match and not mismatch:
        return
    _keys(match, selector, f"{path}.matchLabelKeys", errors)
    _keys(mismatch, selector, f"{path}.mismatchLabelKeys", errors)
    if selector is not None:
        _not_selected_twice(match, selector, path, errors)
    both = set(mismatch)
    for index, key in enumerate(match):
        if key in both:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.append(invalid(f"{path}.matchLabelKeys[{index}]", key, detail))


def _keys(keys: Sequence[str], selector: Object | None, path: str, errors: Errors) -> None:
    if keys and selector is None:
        errors.append(forbidden(path, "must not be specified when labelSelector is not set"))
        return
    for index, key in enumerate(keys):
        named(names.qualified_name, key, f"{path}[{index}]", errors)


def _not_selected_twice(match: Sequence[str], selector: Object, path: str, errors: Errors) -> None:
    """One expression per key is the one that was made from matchLabelKeys; a second is the user's own."""
    index_of = {key: index for index, key in enumerate(match)}
    selected = set(selector.get("matchLabels") or ())
    for expression in selector.get("matchExpressions") or ():
        key = expression.get("key", "")
        if key in selected and key in index_of:
            detail = "exists in both matchLabelKeys and labelSelector"
            errors.append(invalid(f"{path}[{index_of[key]}]", key, detail))
        selected.add(key)
