"""The driver's names in each protocol."""

from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind

DRIVER = "net.podwire.dev"
"""In claims, slices and at the kubelet."""
NRI_NAME, NRI_INDEX = "network-driver", "10"
CDI_KIND = f"{DRIVER}/claim"
CHARACTER_DEVICES = f"{DRIVER}/chardev"
"""The extended resource that a container asks for to have its claim's character devices."""
COMPONENT = "podwire-network-driver"
"""In events, managed fields and requests."""


def _builtin(api_version: str, kind: str) -> Kind:
    found = BUILTIN.of_kind(api_version, kind)
    if found is None:
        raise LookupError(kind)
    return found


CLAIMS = _builtin("resource.k8s.io/v1", "ResourceClaim")
SLICES = _builtin("resource.k8s.io/v1", "ResourceSlice")
PODS = _builtin("v1", "Pod")
NODES = _builtin("v1", "Node")
EVENTS = _builtin("v1", "Event")
