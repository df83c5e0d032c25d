"""RoleBinding and ClusterRoleBinding: a bound role stays, subjects can exist."""

from typing import Any

from podwire.kinds.builtin.rbac.role import GROUP
from podwire.kinds.field_checks import Choice, Errors, Object, named
from podwire.kinds.strategy import Strategy
from podwire.kinds.tables import Json, age_of, elements, name_of, part, text
from podwire.objects import names
from podwire.protocols.k8sapi.status import FieldError, invalid, not_supported, required

_ANY_ROLE = Choice(("Role", "ClusterRole"))
_CLUSTER_ROLE = Choice(("ClusterRole",))
_SUBJECTS = Choice(("ServiceAccount", "User", "Group"))

_BINDING_COLUMNS = "Name|Role|Age|Users*|Groups*|ServiceAccounts*"


def validate_role_binding(obj: Object) -> list[FieldError]:
    return _binding(obj, _ANY_ROLE, namespaced=True)


def validate_cluster_role_binding(obj: Object) -> list[FieldError]:
    return _binding(obj, _CLUSTER_ROLE, namespaced=False)


def validate_role_binding_update(new: Object, old: Object) -> list[FieldError]:
    return validate_role_binding(new) + _same_role(new, old)


def validate_cluster_role_binding_update(new: Object, old: Object) -> list[FieldError]:
    return validate_cluster_role_binding(new) + _same_role(new, old)


def _same_role(new: Object, old: Object) -> list[FieldError]:
    errors: Errors = []
    if new.get("roleRef") != old.get("roleRef"):
        errors.append(invalid("roleRef", new.get("roleRef"), "cannot change roleRef"))
    return errors


def _binding(obj: Object, kinds: Choice, *, namespaced: bool) -> list[FieldError]:
    errors: Errors = []
    role = obj.get("roleRef") or {}
    if role.get("apiGroup") != GROUP:
        errors.append(not_supported("roleRef.apiGroup", role.get("apiGroup", ""), (GROUP,)))
    kinds.check(role.get("kind", ""), "roleRef.kind", errors)
    if name := role.get("name"):
        named(names.path_segment, name, "roleRef.name", errors)
    else:
        errors.append(required("roleRef.name"))
    for index, subject in enumerate(obj.get("subjects") or ()):
        _subject(subject, f"subjects[{index}]", errors, namespaced=namespaced)
    return errors


def _subject(subject: Object, path: str, errors: Errors, *, namespaced: bool) -> None:
    kind, name, group = subject.get("kind", ""), subject.get("name", ""), subject.get("apiGroup", "")
    if not name:
        errors.append(required(f"{path}.name"))
    if kind == "ServiceAccount":
        if name:
            named(names.dns_subdomain, name, f"{path}.name", errors)
        if group:
            errors.append(not_supported(f"{path}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            errors.append(required(f"{path}.namespace"))
    elif kind in ("User", "Group"):
        if group != GROUP:
            errors.append(not_supported(f"{path}.apiGroup", group, (GROUP,)))
    else:
        _SUBJECTS.check(kind, f"{path}.kind", errors)


def default_binding(obj: dict[str, Any]) -> None:
    if not obj["roleRef"].get("apiGroup"):
        obj["roleRef"]["apiGroup"] = GROUP
    for subject in obj.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = GROUP


def binding_row(obj: Json, now: float) -> list[Any]:
    role, subjects = part(obj, "roleRef"), elements(obj, "subjects")

    def named(kind: str) -> str:
        return ", ".join(text(subject, "name") for subject in subjects if subject.get("kind") == kind)

    accounts = (subject for subject in subjects if subject.get("kind") == "ServiceAccount")
    return [
        name_of(obj),
        f"{text(role, 'kind')}/{text(role, 'name')}",
        age_of(obj, now),
        named("User"),
        named("Group"),
        ", ".join(f"{text(account, 'namespace')}/{text(account, 'name')}" for account in accounts),
    ]


ROLE_BINDING = Strategy(
    group=GROUP,
    kind="RoleBinding",
    check_name=names.path_segment,
    parts={"roleRef": {}},
    default=default_binding,
    allow_create_on_update=True,
    validate_create=validate_role_binding,
    validate_update=validate_role_binding_update,
    columns=_BINDING_COLUMNS,
    row=binding_row,
)

CLUSTER_ROLE_BINDING = Strategy(
    group=GROUP,
    kind="ClusterRoleBinding",
    check_name=names.path_segment,
    parts={"roleRef": {}},
    default=default_binding,
    allow_create_on_update=True,
    validate_create=validate_cluster_role_binding,
    validate_update=validate_cluster_role_binding_update,
    columns=_BINDING_COLUMNS,
    row=binding_row,
)
