"""Decides whether a volume is to be expanded on this node, and what the claim's status says afterwards. Pure."""

from podwire.objects.quantity import parse
from podwire.protocols.k8sapi.watch import Object

_RESIZING = ("Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError")
_ON_NODE = ("", "NodeResizePending", "NodeResizeInProgress")


def new_size(claim: Object, volume: Object) -> str:
    """The size that the volume has already and the claim's status does not show yet; empty if there is none, or if a
    controller is still at work."""
    status = claim.get("status") or {}
    size = ((volume.get("spec") or {}).get("capacity") or {}).get("storage")
    shown = (status.get("capacity") or {}).get("storage")
    state = (status.get("allocatedResourceStatuses") or {}).get("storage", "")
    if size is None or shown is None or state not in _ON_NODE:
        return ""
    return str(size) if parse(str(size)).value() > parse(str(shown)).value() else ""


def expanded(claim: Object, size: str) -> Object:
    """A merge patch of the claim's status after the volume was expanded."""
    status = claim.get("status") or {}
    conditions = [condition for condition in status.get("conditions") or () if condition["type"] not in _RESIZING]
    patch: Object = {"capacity": {"storage": size}, "conditions": conditions or None}
    if "storage" in (status.get("allocatedResourceStatuses") or {}):
        patch["allocatedResourceStatuses"] = {"storage": None}
    return {"status": patch}
