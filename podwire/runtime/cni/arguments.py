"""CNI_ARGS and capability arguments of a pod. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from podwire.objects.quantity import Quantity
from podwire.protocols.cni.args import IGNORE_UNKNOWN, formatted
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument
from podwire.runtime.ports import Attachment

ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
INGRESS, EGRESS = "kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"
MIN_RATE, MAX_RATE = 10**3, 10**15
"""Bits per second."""
BURST = 2**32 - 1
"""Bits. Kubernetes has no annotation for it; containerd sends the same value."""
_NANO = 10**9
DEVICES, DEVICE = "podwire.dev/devices", "deviceID"
"""DEVICES: the sandbox annotation with the pod's devices, JSON, ids by resource name.
DEVICE: the capability by which a plugin gets one of them: of the resource that its configuration names `resourceName`.
"""


def cni_args(pod: Attachment) -> str:
    """Returns CNI_ARGS as plugins for Kubernetes know them."""
    return formatted(
        {
            IGNORE_UNKNOWN: "1",
            "K8S_POD_NAMESPACE": pod.namespace,
            "K8S_POD_NAME": pod.name,
            "K8S_POD_INFRA_CONTAINER_ID": pod.id,
            "K8S_POD_UID": pod.uid,
        }
    )


def capability_args(pod: Attachment) -> dict[str, Any]:
    """Returns values by capability, without empty ones. Raises InvalidArgument for a wrong annotation."""
    ports = [_port_mapping(port) for port in pod.ports if port.host_port > 0]
    bandwidth = _rate(pod, INGRESS, "ingress") | _rate(pod, EGRESS, "egress")
    values = {
        "portMappings": ports,
        "bandwidth": bandwidth,
        ANNOTATIONS: dict(pod.annotations),
        DEVICES: _devices(pod),
    }
    return {capability: value for capability, value in values.items() if value}


def plugin_capability_args(
    capabilities: Mapping[str, Any], plugin: Mapping[str, Any], plugins: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Returns the capability arguments of one plugin: where several take devices of one resource, each gets its own."""
    resource = plugin.get("resourceName", "")
    ids = (capabilities.get(DEVICES) or {}).get(resource, ())
    takers = [other for other in plugins if _takes_device(other, resource)]
    index = next((at for at, other in enumerate(takers) if other is plugin), len(ids))
    return {**capabilities, DEVICE: ids[index]} if index < len(ids) else capabilities


def _takes_device(plugin: Mapping[str, Any], resource: str) -> bool:
    return plugin.get("resourceName", "") == resource and bool((plugin.get("capabilities") or {}).get(DEVICE))


def _devices(pod: Attachment) -> dict[str, list[str]]:
    text = pod.annotations.get(DEVICES, "{}")
    try:
        return msgspec.json.decode(text, type=dict[str, list[str]])
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"annotation {DEVICES}: {error}") from error


def _port_mapping(port: pb.PortMapping) -> dict[str, Any]:
    mapping: dict[str, Any] = {
        "hostPort": port.host_port,
        "containerPort": port.container_port,
        "protocol": pb.Protocol.Name(port.protocol).lower(),
    }
    return mapping | ({"hostIP": port.host_ip} if port.host_ip else {})


def _rate(pod: Attachment, annotation: str, direction: str) -> dict[str, int]:
    text = pod.annotations.get(annotation)
    if text is None:
        return {}
    try:
        rate = Quantity.parse(text).nano // _NANO
    except ValueError as error:
        raise InvalidArgument(f"annotation {annotation}: {text!r} is not a quantity") from error
    if not MIN_RATE <= rate <= MAX_RATE:
        raise InvalidArgument(f"annotation {annotation}: {text} must be between 1k and 1P bits per second")
    return {f"{direction}Rate": rate, f"{direction}Burst": BURST}
