"""Conflicts in upstream's words."""

from podwire.kinds.apply.managers import Manager
from podwire.kinds.apply.ownership import Conflicts
from podwire.kinds.apply.types import shown
from podwire.protocols.k8sapi.status import ApiError, Reason

CAUSE = "FieldManagerConflict"


def refusal(conflicts: Conflicts) -> ApiError:
    """409 with one cause for each field and each manager that has it."""
    causes = [
        {"reason": CAUSE, "message": f"conflict with {manager}", "field": shown(path)}
        for manager, path in conflicts.found
    ]
    return ApiError(Reason.CONFLICT, _message(conflicts.found), details={"causes": causes})


def _message(found: list[tuple[Manager, tuple[str, ...]]]) -> str:
    if len(found) == 1:
        manager, path = found[0]
        return f"Apply failed with 1 conflict: conflict with {manager}: {shown(path)}"
    fields: dict[Manager, list[str]] = {}
    for manager, path in found:
        fields.setdefault(manager, []).append(f"- {shown(path)}")
    lines = [line for manager, told in fields.items() for line in (f"conflicts with {manager}:", *told)]
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
