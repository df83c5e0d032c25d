"""Role and ClusterRole: rules about resources, and about other URLs in a ClusterRole."""

from podwire.kinds.field_checks import Errors, Object, label_selector
from podwire.kinds.strategy import Strategy, as_on_create
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, invalid, required

GROUP = "rbac.authorization.k8s.io"


def validate_role(obj: Object) -> list[FieldError]:
    errors: Errors = []
    for index, rule in enumerate(obj.get("rules") or ()):
        _rule(rule, f"rules[{index}]", errors, namespaced=True)
    return errors


def validate_cluster_role(obj: Object) -> list[FieldError]:
    errors: Errors = []
    for index, rule in enumerate(obj.get("rules") or ()):
        _rule(rule, f"rules[{index}]", errors, namespaced=False)
    if (aggregation := obj.get("aggregationRule")) is not None:
        path = "aggregationRule.clusterRoleSelectors"
        selectors = aggregation.get("clusterRoleSelectors") or ()
        if not selectors:
            detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            errors.append(required(path, detail))
        for index, selector in enumerate(selectors):
            label_selector(selector, f"{path}[{index}]", errors)
    return errors


def _rule(rule: Object, path: str, errors: Errors, *, namespaced: bool) -> None:
    if not rule.get("verbs"):
        errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
    if urls := rule.get("nonResourceURLs"):
        place = f"{path}.nonResourceURLs"
        if namespaced:
            errors.append(invalid(place, urls, "namespaced rules cannot apply to non-resource URLs"))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid(place, urls, detail))
        return
    if not rule.get("apiGroups"):
        errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))


ROLE = Strategy(
    group=GROUP,
    kind="Role",
    check_name=names.path_segment,
    allow_create_on_update=True,
    validate_create=validate_role,
    validate_update=as_on_create(validate_role),
)


CLUSTER_ROLE = Strategy(
    group=GROUP,
    kind="ClusterRole",
    check_name=names.path_segment,
    allow_create_on_update=True,
    validate_create=validate_cluster_role,
    validate_update=as_on_create(validate_cluster_role),
)
