"""The kinds that the scheduler watches."""

from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind


def _builtin(api_version: str, kind: str) -> Kind:
    found = BUILTIN.of_kind(api_version, kind)
    if found is None:
        raise LookupError(f"{api_version} {kind}")
    return found


PODS = _builtin("v1", "Pod")
NAMESPACES = _builtin("v1", "Namespace")
NODES = _builtin("v1", "Node")
BUDGETS = _builtin("policy/v1", "PodDisruptionBudget")
CLAIMS = _builtin("resource.k8s.io/v1", "ResourceClaim")
SLICES = _builtin("resource.k8s.io/v1", "ResourceSlice")
DEVICE_CLASSES = _builtin("resource.k8s.io/v1", "DeviceClass")
VOLUMES = _builtin("v1", "PersistentVolume")
VOLUME_CLAIMS = _builtin("v1", "PersistentVolumeClaim")
STORAGE_CLASSES = _builtin("storage.k8s.io/v1", "StorageClass")
CSI_DRIVERS = _builtin("storage.k8s.io/v1", "CSIDriver")
CSI_NODES = _builtin("storage.k8s.io/v1", "CSINode")
CSI_CAPACITIES = _builtin("storage.k8s.io/v1", "CSIStorageCapacity")
TAINT_RULES = _builtin("resource.k8s.io/v1beta2", "DeviceTaintRule")
