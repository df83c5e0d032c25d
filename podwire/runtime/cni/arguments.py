"""What plugins are told of a pod: arguments and capabilities. Pure."""

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
SLOWEST, FASTEST = 10**3, 10**15
"""Bits a second."""
BURST = 2**32 - 1
"""Bits; Kubernetes lets nobody choose, and this is what runtimes send."""
_NANO = 10**9
DEVICES, DEVICE = "podwire.dev/devices", "deviceID"
"""The annotation of a sandbox that says which devices the pod has, as JSON, ids by resource; and the capability by
which a plugin gets one of them: of the resource that its configuration calls `resourceName`."""


def arguments(pod: Attachment) -> str:
    """CNI_ARGS as plugins for Kubernetes know them."""
    return formatted(
        {
            IGNORE_UNKNOWN: "1",
            "K8S_POD_NAMESPACE": pod.namespace,
            "K8S_POD_NAME": pod.name,
            "K8S_POD_INFRA_CONTAINER_ID": pod.id,
            "K8S_POD_UID": pod.uid,
        }
    )


def capabilities(pod: Attachment) -> dict[str, Any]:
    """Values by capability; only what there is something to say of."""
    ports = [_mapping(each) for each in pod.ports if each.host_port > 0]
    bandwidth = _rate(pod, INGRESS, "ingress") | _rate(pod, EGRESS, "egress")
    told = {"portMappings": ports, "bandwidth": bandwidth, ANNOTATIONS: dict(pod.annotations), DEVICES: _devices(pod)}
    return {key: value for key, value in told.items() if value}


def of_plugin(
    capabilities: Mapping[str, Any], plugin: Mapping[str, Any], plugins: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """The capabilities for one plugin of a network: where several take devices of one resource, each gets its own."""
    ids = (capabilities.get(DEVICES) or {}).get(plugin.get("resourceName", ""), ())
    takers = [each for each in plugins if _takes(each, plugin.get("resourceName", ""))]
    turn = next((at for at, each in enumerate(takers) if each is plugin), len(ids))
    return {**capabilities, DEVICE: ids[turn]} if turn < len(ids) else capabilities


def _takes(plugin: Mapping[str, Any], resource: str) -> bool:
    return plugin.get("resourceName", "") == resource and bool((plugin.get("capabilities") or {}).get(DEVICE))


def _devices(pod: Attachment) -> dict[str, list[str]]:
    text = pod.annotations.get(DEVICES, "{}")
    try:
        return msgspec.json.decode(text, type=dict[str, list[str]])
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"annotation {DEVICES}: {error}") from error


def _mapping(port: pb.PortMapping) -> dict[str, Any]:
    told: dict[str, Any] = {
        "hostPort": port.host_port,
        "containerPort": port.container_port,
        "protocol": pb.Protocol.Name(port.protocol).lower(),
    }
    return told | ({"hostIP": port.host_ip} if port.host_ip else {})


def _rate(pod: Attachment, annotation: str, direction: str) -> dict[str, int]:
    text = pod.annotations.get(annotation)
    if text is None:
        return {}
    try:
        rate = Quantity.parse(text).nano // _NANO
    except ValueError as error:
        raise InvalidArgument(f"annotation {annotation}: {text!r} is no quantity") from error
    if not SLOWEST <= rate <= FASTEST:
        raise InvalidArgument(f"annotation {annotation}: {text} is not between 1k and 1P bits a second")
    return {f"{direction}Rate": rate, f"{direction}Burst": BURST}
