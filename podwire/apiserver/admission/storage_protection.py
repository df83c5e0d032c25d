"""StorageObjectInUseProtection: new claims and volumes get the finalizer by which controllers protect them in use."""

from dataclasses import dataclass

from podwire.apiserver.admission.chain import AdmissionPlugin, Operation
from podwire.objects.persistent_volumes import CLAIM_PROTECTION, VOLUME_PROTECTION

_FINALIZERS = {"persistentvolumeclaims": CLAIM_PROTECTION, "persistentvolumes": VOLUME_PROTECTION}


@dataclass(frozen=True, slots=True)
class StorageObjectInUseProtection(AdmissionPlugin):
    """Adds the finalizer; the two protection controllers remove it."""

    verbs = frozenset({"CREATE"})
    resources = frozenset(("", resource) for resource in _FINALIZERS)

    async def admit(self, operation: Operation) -> None:
        finalizer = _FINALIZERS[operation.resource.name]
        if operation.subresource or finalizer in (operation.obj["metadata"].get("finalizers") or ()):
            return
        operation.obj["metadata"].setdefault("finalizers", []).append(finalizer)
