"""The inputs of the policy engine: pods, and how those of this node are attached."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import ip_address
from typing import Any

from podwire.linux.values import IP

PROTOCOLS = {"TCP": 6, "UDP": 17, "SCTP": 132}
PROTOCOL_NAMES = {number: name for name, number in PROTOCOLS.items()}
_FINAL = frozenset(("Succeeded", "Failed"))
_NODE_ADDRESSES = ("InternalIP", "ExternalIP")
NAME_LABEL = "kubernetes.io/metadata.name"
DNS_NAMESPACE, DNS_LABELS = "kube-system", {"k8s-app": "kube-dns"}
"""The labels by which policies allow the DNS server of a cluster, whichever program it is."""

NamedPort = tuple[str, str]
"""Protocol and name of a container's port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod, as far as policies look at it."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    ips: tuple[IP, ...] = ()
    node: str = ""
    ports: Mapping[NamedPort, int] = field(default_factory=dict)
    host_network: bool = False
    """A pod on the host's network: no policy selects it, and peers see it as an address."""
    is_process: bool = False
    """A server that is not a pod: no policy selects it, but peers mean it by its labels."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def pod_of(manifest: Mapping[str, Any]) -> Pod:
    """From a Pod object. A finished pod has no addresses: they may belong to another pod by now."""
    metadata, spec, status = (manifest.get(key) or {} for key in ("metadata", "spec", "status"))
    over = status.get("phase") in _FINAL
    reported = [entry.get("ip") for entry in status.get("podIPs") or []] or [status.get("podIP")]
    return Pod(
        uid=metadata.get("uid", ""),
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        labels=metadata.get("labels") or {},
        ips=() if over else tuple(ip_address(ip) for ip in reported if ip),
        node=spec.get("nodeName") or "",
        ports=named_ports(spec),
        host_network=bool(spec.get("hostNetwork")),
    )


def dns_server_of(slice_: Mapping[str, Any]) -> Pod:
    """From an EndpointSlice of the Service kube-dns: its servers that are not pods, such as `podwire dns`."""
    metadata = slice_.get("metadata") or {}
    addresses = [
        address
        for endpoint in slice_.get("endpoints") or ()
        if (endpoint.get("targetRef") or {}).get("kind") != "Pod"
        for address in endpoint.get("addresses") or ()
    ]
    ports = {
        (port.get("protocol") or "TCP", port["name"]): port["port"]
        for port in slice_.get("ports") or ()
        if port.get("name") and port.get("port")
    }
    return Pod(
        uid=f"dns-server {metadata.get('uid', '')}",
        namespace=DNS_NAMESPACE,
        name=metadata.get("name", ""),
        labels=DNS_LABELS,
        ips=tuple(map(ip_address, addresses)) if slice_.get("addressType") in ("IPv4", "IPv6") else (),
        ports=ports,
        is_process=True,
    )


def node_addresses_of(manifest: Mapping[str, Any]) -> list[IP]:
    """The addresses of a Node object by which others reach it."""
    addresses = (manifest.get("status") or {}).get("addresses") or ()
    return [ip_address(address["address"]) for address in addresses if address.get("type") in _NODE_ADDRESSES]


def named_ports(spec: Mapping[str, Any]) -> dict[NamedPort, int]:
    """The named ports of containers and sidecars; of two with one name the first counts."""
    sidecars = [
        init_container
        for init_container in spec.get("initContainers") or []
        if init_container.get("restartPolicy") == "Always"
    ]
    ports: dict[NamedPort, int] = {}
    for container in [*(spec.get("containers") or []), *sidecars]:
        for port in container.get("ports") or []:
            if port.get("name"):
                ports.setdefault((port.get("protocol") or "TCP", port["name"]), port["containerPort"])
    return ports


class Attachment(StrEnum):
    """The path of a pod's packets to its node, which decides where they are filtered."""

    ROUTED = "routed"
    """By a veth whose peer is on the node: filtered in the node's `inet forward`."""
    BRIDGED = "bridged"
    """By a port of a bridge of the node: filtered there, too, if bridges call it (`bridge-nf-call-iptables`)."""
    INSIDE = "inside"
    """Past the node (macvlan, a moved device): filtered in the pod's namespace, where NET_ADMIN could undo it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPod:
    """A pod of this node, with its attachment."""

    uid: str
    ips: tuple[IP, ...]
    attachment: Attachment = Attachment.ROUTED
    link: str = ""
    """ROUTED: the node's end of the veth. BRIDGED: the bridge. INSIDE: the pod's own link."""
    netns: str = ""
