"""What plugins are told of a pod: arguments and capabilities. Pure."""

from typing import Any

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
    told = {"portMappings": ports, "bandwidth": bandwidth, ANNOTATIONS: dict(pod.annotations)}
    return {key: value for key, value in told.items() if value}


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
