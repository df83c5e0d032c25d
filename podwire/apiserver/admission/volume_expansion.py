"""PersistentVolumeClaimResize: a bound claim grows only if its storage class allows it."""

from dataclasses import dataclass

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.apiserver.admission.default_classes import STORAGE_CLASS
from podwire.apiserver.admission.informers import ObjectInformer
from podwire.kinds.stored import Object
from podwire.objects import quantity

UNBOUND = "Only bound persistent volume claims can be expanded"
UNSUPPORTED = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
)


@dataclass(frozen=True, slots=True)
class PersistentVolumeClaimResize(AdmissionPlugin):
    """Refuses larger requests that no provisioner would follow."""

    classes: ObjectInformer

    verbs = frozenset({"UPDATE"})
    resources = frozenset({("", "persistentvolumeclaims")})

    async def validate(self, operation: Operation) -> None:
        if operation.old is None or operation.subresource:
            return
        if _size(operation.obj) <= _size(operation.old):
            return
        if (operation.old.get("status") or {}).get("phase") != "Bound":
            raise operation.forbidden(UNBOUND)
        before, now = _class(operation.old), _class(operation.obj)
        class_ = await self.classes.get(now) if now and now == before else None
        if class_ is None or not class_.get("allowVolumeExpansion"):
            raise operation.forbidden(UNSUPPORTED)


def _size(claim: Object) -> quantity.Quantity:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return quantity.parse(requests.get("storage") or "0")


def _class(claim: Object) -> str:
    annotations = claim["metadata"].get("annotations") or {}
    return str(annotations.get(STORAGE_CLASS) or claim["spec"].get("storageClassName") or "")
