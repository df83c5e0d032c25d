"""What the engine is told: pods, and where those of this node are attached."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from typing import Any

from podwire.linux.values import IP

PROTOCOLS = {"TCP": 6, "UDP": 17, "SCTP": 132}
_FINAL = frozenset(("Succeeded", "Failed"))
NAME_LABEL = "kubernetes.io/metadata.name"

NamedPort = tuple[str, str]
"""Protocol and name of a container's port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What policies decide on of a pod."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    ips: tuple[IP, ...] = ()
    node: str = ""
    ports: Mapping[NamedPort, int] = field(default_factory=dict)
    host_network: bool = False
    """Its packets are the node's: no policy selects it, and peers see it as an address."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def pod_of(manifest: Mapping[str, Any]) -> Pod:
    """From a Pod object. One that is over has no addresses: they may be somebody else's by now."""
    metadata, spec, status = (manifest.get(each) or {} for each in ("metadata", "spec", "status"))
    over = status.get("phase") in _FINAL
    told = [each.get("ip") for each in status.get("podIPs") or []] or [status.get("podIP")]
    return Pod(
        uid=metadata.get("uid", ""),
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        labels=metadata.get("labels") or {},
        ips=() if over else tuple(ip_address(each) for each in told if each),
        node=spec.get("nodeName") or "",
        ports=named_ports(spec),
        host_network=bool(spec.get("hostNetwork")),
    )


def named_ports(spec: Mapping[str, Any]) -> dict[NamedPort, int]:
    """Of containers and of those that run beside them; of two with one name the first counts."""
    beside = [each for each in spec.get("initContainers") or [] if each.get("restartPolicy") == "Always"]
    found: dict[NamedPort, int] = {}
    for container in [*(spec.get("containers") or []), *beside]:
        for port in container.get("ports") or []:
            if port.get("name"):
                found.setdefault((port.get("protocol") or "TCP", port["name"]), port["containerPort"])
    return found


class Attachment(StrEnum):
    """How a pod's packets come to its node, which decides where they are judged."""

    ROUTED = "routed"
    """By a link whose other end is the node's: in the node's `inet forward`."""
    BRIDGED = "bridged"
    """By a port of the node's bridge: there too, as long as bridges call it (`bridge-nf-call-iptables`)."""
    INSIDE = "inside"
    """Past the node (macvlan, a card of its own): in the pod's namespace, where NET_ADMIN could undo it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPod:
    """A pod of this node, as its sandbox was attached."""

    uid: str
    ips: tuple[IP, ...]
    attachment: Attachment = Attachment.ROUTED
    link: str = ""
    """The node's end of a routed one, the bridge of a bridged one, the pod's own link of one inside."""
    netns: str = ""
