"""Claims for devices: admin access needs a label on the namespace, and released devices lose their status."""

from collections.abc import Iterator
from dataclasses import dataclass

from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation
from podwire.apiserver.ports import Store
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import Object, unpack
from podwire.protocols.k8sapi.status import forbidden, invalid_object

GROUP = "resource.k8s.io"
ADMIN_LABEL = "resource.kubernetes.io/admin-access"

_UNMARKED = f"admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"


@dataclass(frozen=True, slots=True)
class DeviceClaims(AdmissionPlugin):
    """Checks claims and templates in their v1 form, in every version."""

    store: Store

    verbs = WRITES
    resources = frozenset({(GROUP, "resourceclaims"), (GROUP, "resourceclaimtemplates")})

    async def admit(self, operation: Operation) -> None:
        if operation.subresource == "status" and operation.is_for(GROUP, "resourceclaims"):
            forget_released(operation.obj, operation.old or {})
        path = admin_access(operation)
        if path and not await self._marked(operation.namespace):
            name, kind = operation.name, operation.resource.kind.kind
            raise invalid_object(kind, name, [forbidden(path, _UNMARKED)], group=GROUP)

    async def _marked(self, namespace: str) -> bool:
        item = await self.store.get(f"{PREFIX}namespaces/{namespace}")
        return item is not None and unpack(item)["metadata"].get("labels", {}).get(ADMIN_LABEL) == "true"


def admin_access(operation: Operation) -> str:
    """Returns the field that requests or grants admin access to a device; empty for none."""
    if operation.subresource == "status":
        before = [result for result in _results(operation.old or {}) if result.get("adminAccess")]
        granted = (index for index, result in enumerate(_results(operation.obj)) if result.get("adminAccess"))
        index = None if before else next(granted, None)
        return "" if index is None else f"status.allocation.devices.results[{index}].adminAccess"
    if operation.verb != "CREATE":
        return ""
    conversion = operation.resource.conversion
    obj = conversion.to_stored(operation.obj) if conversion else operation.obj
    template = operation.resource.name == "resourceclaimtemplates"
    spec, path = (obj["spec"].get("spec") or {}, "spec.spec") if template else (obj["spec"], "spec")
    for index, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
        if (request.get("exactly") or {}).get("adminAccess"):
            return f"{path}.devices.requests[{index}].exactly.adminAccess"
    return ""


def forget_released(claim: Object, old: Object) -> None:
    """Removes the status of devices that the claim no longer has. Changes `claim`."""
    status = claim.get("status") or {}
    if not status.get("devices"):
        return
    released = {*map(_device, _results(old))} - {*map(_device, _results(claim))}
    kept = [device for device in status["devices"] if _device(device) not in released]
    claim["status"] = {**status, "devices": kept}
    if not kept:
        del claim["status"]["devices"]


def _results(claim: Object) -> Iterator[Object]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    yield from (allocation.get("devices") or {}).get("results") or ()


def _device(given: Object) -> tuple[str, ...]:
    return tuple(given.get(key) or "" for key in ("driver", "pool", "device"))
