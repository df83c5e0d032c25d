"""Services and EndpointSlices, reduced to what decides how packets are sent on.

Decoded from JSON straight into these types: of ten thousand Services nothing else is kept.
"""

from collections.abc import Iterable
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from sys import intern
from typing import NamedTuple

import msgspec

from podwire.linux.net.address_text import packed
from podwire.linux.net.address_text import text as address_text

Network = IPv4Network | IPv6Network
Name = tuple[str, str]
"""Namespace and name of a Service."""

PROTOCOLS = {"TCP": 6, "UDP": 17, "SCTP": 132}
READY, SERVING, TERMINATING = 1, 2, 4
CLIENT_IP, LOCAL, VIP = "ClientIP", "Local", "VIP"
NO_ADDRESS = "None"
SERVICE_LABEL = "kubernetes.io/service-name"
CHANGED = "endpoints.kubernetes.io/last-change-trigger-time"
_DAY = 86400
_LENGTH = {4: 4, 6: 16}
_MULTICAST4, _MULTICAST6 = 224, 0xFF
_NOT6 = (bytes(16), bytes(15) + b"\1")


class Port(NamedTuple):
    """A port of a Service."""

    name: str
    protocol: int
    number: int
    node_port: int = 0


class Service(NamedTuple):
    """A Service with addresses of its own."""

    name: Name
    uid: str = ""
    cluster_ips: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    external_ips: tuple[str, ...] = ()
    balancer_ips: tuple[str, ...] = ()
    """Addresses of its load balancer that nodes serve."""
    sources: tuple[Network, ...] = ()
    """The networks that may use the load balancer's addresses; empty: all."""
    internal_local: bool = False
    external_local: bool = False
    affinity: int = 0
    """Seconds for which a client stays with its endpoint; 0: not at all."""
    health_port: int = 0

    @property
    def versions(self) -> tuple[int, ...]:
        """The address families: those of its cluster addresses."""
        return tuple(version_of(address) for address in self.cluster_ips)

    def externals(self, version: int) -> tuple[str, ...]:
        """Returns external and load balancer addresses of a family."""
        return tuple(
            address
            for address in dict.fromkeys((*self.external_ips, *self.balancer_ips))
            if version_of(address) == version
        )


class Endpoint(NamedTuple):
    address: bytes
    state: int = READY | SERVING
    node: str = ""
    zones: tuple[str, ...] = ()
    """Zones that it is meant for."""
    nodes: tuple[str, ...] = ()
    """Nodes that it is meant for."""


class Slice(NamedTuple):
    service: Name
    version: int
    ports: tuple[tuple[str, int, int], ...]
    """Name, protocol and number."""
    endpoints: tuple[Endpoint, ...]
    changed: str = ""
    """The time of the change that led to this slice."""


def version_of(address: str) -> int:
    return 6 if ":" in address else 4


@cache
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns one tuple for all endpoints that have equal ones."""
    return tuple(map(intern, names))


# The objects of the API, as far as they are read.


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Port(msgspec.Struct, rename="camel", gc=False):
    port: int = 0
    name: str | None = ""
    protocol: str | None = "TCP"
    node_port: int = 0


class _ClientIp(msgspec.Struct, rename="camel", gc=False):
    timeout_seconds: int | None = None


class _Affinity(msgspec.Struct, gc=False):
    client_ip: _ClientIp | None = msgspec.field(name="clientIP", default=None)


class _ServiceSpec(msgspec.Struct, rename="camel"):
    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    cluster_ips: list[str] | None = msgspec.field(name="clusterIPs", default=None)
    ports: list[_Port] | None = None
    external_ips: list[str] | None = msgspec.field(name="externalIPs", default=None)
    load_balancer_source_ranges: list[str] | None = None
    internal_traffic_policy: str | None = None
    external_traffic_policy: str | None = None
    session_affinity: str | None = None
    session_affinity_config: _Affinity | None = None
    health_check_node_port: int = 0


class _Ingress(msgspec.Struct, rename="camel", gc=False):
    ip: str = ""
    ip_mode: str | None = None


class _Balancer(msgspec.Struct):
    ingress: list[_Ingress] | None = None


class _ServiceStatus(msgspec.Struct, rename="camel"):
    load_balancer: _Balancer | None = None


class ServiceObject(msgspec.Struct):
    """A Service of the API."""

    metadata: _Metadata
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)
    status: _ServiceStatus | None = None

    @property
    def key(self) -> Name:
        return self.metadata.namespace, self.metadata.name

    def reduced(self) -> Service | None:
        """Returns the Service; None if nobody can be sent anywhere by its addresses: headless, ExternalName."""
        spec = self.spec
        cluster_ips = tuple(filter(None, spec.cluster_ips or (spec.cluster_ip,)))
        if spec.type == "ExternalName" or not cluster_ips or NO_ADDRESS in cluster_ips:
            return None
        given = (self.status and self.status.load_balancer and self.status.load_balancer.ingress) or ()
        balancer_ips = [row.ip for row in given if row.ip and row.ip_mode in (None, VIP)]
        return Service(
            name=(intern(self.metadata.namespace), self.metadata.name),
            uid=self.metadata.uid,
            cluster_ips=tuple(filter(None, map(_canonical, cluster_ips))),
            ports=tuple(port for row in spec.ports or () if (port := _port(row)) is not None),
            external_ips=tuple(filter(None, map(_canonical, spec.external_ips or ()))),
            balancer_ips=tuple(filter(None, map(_canonical, balancer_ips if spec.type == "LoadBalancer" else ()))),
            sources=networks(spec.load_balancer_source_ranges or ()),
            internal_local=spec.internal_traffic_policy == LOCAL,
            external_local=spec.external_traffic_policy == LOCAL,
            affinity=_affinity(spec),
            health_port=spec.health_check_node_port if spec.external_traffic_policy == LOCAL else 0,
        )


def _port(row: _Port) -> Port | None:
    protocol = PROTOCOLS.get(row.protocol or "TCP")
    return None if protocol is None else Port(intern(row.name or ""), protocol, row.port, row.node_port)


def _affinity(spec: _ServiceSpec) -> int:
    if spec.session_affinity != CLIENT_IP:
        return 0
    config = spec.session_affinity_config and spec.session_affinity_config.client_ip
    seconds = config.timeout_seconds if config else None
    return min(max(seconds or 10800, 1), _DAY)


def _packed(text: str) -> bytes:
    """Returns the bytes of an address; empty if it is none to which packets can be sent: loopback, multicast."""
    try:
        address = packed(text)
    except ValueError:
        return b""
    first = address[0]
    if len(address) == _LENGTH[4]:
        return b"" if first in (0, 127) or first >= _MULTICAST4 else address
    return b"" if first == _MULTICAST6 or address in _NOT6 else address


def _canonical(text: str) -> str:
    """Returns an address as all others write it; empty if it is none that a Service can have."""
    address = _packed(text)
    return address_text(address) if address else ""


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Returns networks; what is none is left out."""
    parsed = []
    for text in texts:
        try:
            parsed.append(ip_network(text.strip(), strict=False))
        except ValueError:
            continue
    return tuple(parsed)


class _Conditions(msgspec.Struct, gc=False):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class _Hint(msgspec.Struct, gc=False):
    name: str = ""


class _Hints(msgspec.Struct, rename="camel"):
    for_zones: list[_Hint] | None = None
    for_nodes: list[_Hint] | None = None


class _Endpoint(msgspec.Struct, rename="camel"):
    addresses: list[str] = []
    conditions: _Conditions | None = None
    node_name: str | None = None
    hints: _Hints | None = None


class _SlicePort(msgspec.Struct, gc=False):
    port: int | None = None
    name: str | None = ""
    protocol: str | None = "TCP"


class SliceObject(msgspec.Struct, rename="camel"):
    """An EndpointSlice of the API."""

    metadata: _Metadata
    address_type: str = ""
    endpoints: list[_Endpoint] | None = None
    ports: list[_SlicePort] | None = None

    @property
    def key(self) -> Name:
        return self.metadata.namespace, self.metadata.name

    def reduced(self) -> Slice | None:
        """Returns the slice; None if it is nobody's, or has names instead of addresses."""
        service = (self.metadata.labels or {}).get(SERVICE_LABEL, "")
        if not service or self.address_type not in ("IPv4", "IPv6"):
            return None
        version = 4 if self.address_type == "IPv4" else 6
        ports = [
            (intern(row.name or ""), PROTOCOLS[row.protocol or "TCP"], row.port)
            for row in self.ports or ()
            if row.port and (row.protocol or "TCP") in PROTOCOLS
        ]
        return Slice(
            service=(intern(self.metadata.namespace), service),
            version=version,
            ports=_shared_ports(tuple(ports)),
            endpoints=tuple(
                endpoint for row in self.endpoints or () if (endpoint := _endpoint(row, version)) is not None
            ),
            changed=(self.metadata.annotations or {}).get(CHANGED, ""),
        )


@cache
def _shared_ports(ports: tuple[tuple[str, int, int], ...]) -> tuple[tuple[str, int, int], ...]:
    return ports


def _endpoint(row: _Endpoint, version: int) -> Endpoint | None:
    """Returns an endpoint by its first address, as all proxies do; None if it has none that can be reached."""
    address = _packed(row.addresses[0]) if row.addresses else b""
    if len(address) != _LENGTH[version]:
        return None
    conditions = row.conditions or _UNKNOWN
    ready = conditions.ready is not False
    serving = ready if conditions.serving is None else conditions.serving
    state = READY * ready | SERVING * serving | TERMINATING * bool(conditions.terminating)
    zones: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    if row.hints is not None:
        zones = _shared(tuple(hint.name for hint in row.hints.for_zones or ()))
        nodes = _shared(tuple(hint.name for hint in row.hints.for_nodes or ()))
    return Endpoint(address, state, intern(row.node_name or ""), zones, nodes)


_UNKNOWN = _Conditions()


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _ServiceList(msgspec.Struct):
    metadata: _ListMetadata
    items: list[ServiceObject] | None = None


class _SliceList(msgspec.Struct):
    metadata: _ListMetadata
    items: list[SliceObject] | None = None


_decode_services = msgspec.json.Decoder(_ServiceList).decode
_decode_slices = msgspec.json.Decoder(_SliceList).decode


def read_services(page: bytes) -> tuple[list[ServiceObject], str, str]:
    """Returns the Services of a page of a list, the token of the next page and the resourceVersion."""
    read = _decode_services(page)
    return read.items or [], read.metadata.continue_, read.metadata.resource_version


def read_slices(page: bytes) -> tuple[list[SliceObject], str, str]:
    """Returns the EndpointSlices of a page of a list, the token of the next page and the resourceVersion."""
    read = _decode_slices(page)
    return read.items or [], read.metadata.continue_, read.metadata.resource_version
