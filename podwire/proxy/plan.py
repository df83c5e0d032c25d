"""Decides the elements of one Service in the kernel. Pure.

A list of endpoints keeps its order: an endpoint that goes leaves a hole, which a new one or the last one fills. So one
endpoint more or less changes one element, or two, of a list of any length.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import collapse_addresses
from sys import byteorder

from podwire.linux.net.address_text import packed
from podwire.proxy.program import TARGETS, Target
from podwire.proxy.topology import Chosen, Place, choose
from podwire.proxy.values import READY, Endpoint, Network, Port, Service, Slice, version_of

Key = tuple[str, bytes]
"""Set or map, and key."""
Order = tuple[bytes, ...]
"""Endpoints of a list by index: address and port."""
Orders = Mapping[bytes, Order]

UDP = 17
_ANY = {4: bytes(4), 6: bytes(16)}
_NOBODY = Chosen()


@dataclass(slots=True)
class Plan:
    elements: dict[Key, bytes | str] = field(default_factory=dict)
    """Data of each key; of a set of ranges the last key."""
    orders: dict[bytes, Order] = field(default_factory=dict)
    here: set[tuple[int, bytes]] = field(default_factory=set)
    """Family and address of endpoints on this node."""
    datagrams: dict[tuple[int, bytes], frozenset[bytes]] = field(default_factory=dict)
    """The endpoints behind each UDP frontend: connection tracking must not know others."""
    no_local: tuple[bool, bool] = (False, False)
    """Whether internal and external traffic is for this node only, and nobody is here."""
    local_ready: int = 0
    """Ready endpoints on this node."""


NOTHING = Plan()


def list_id(service: Service, version: int, port: Port, policy: str) -> bytes:
    """Returns a number of 64 bits that is the same after a restart, so that clients keep their endpoints; behind the
    zeros with which the keys of lists begin."""
    namespace, name = service.name
    text = f"{namespace}/{name}/{port.protocol}/{port.name}/{version}/{policy}"
    return bytes(4) + blake2b(text.encode(), digest_size=8).digest()


def frontend(version: int, address: str, protocol: int, port: int) -> bytes:
    """Returns the key of a frontend; without an address that of a node port."""
    there = packed(address) if address else _ANY[version]
    return there + bytes((protocol, 0, 0, 0)) + port.to_bytes(2, "big") + b"\0\0"


def arrange(before: Order, wanted: Sequence[bytes]) -> Order:
    """Returns the wanted endpoints in an order that differs in as few indexes as possible."""
    left = dict.fromkeys(wanted)
    count = len(left)
    result: list[bytes | None] = [None] * count
    moved = []
    for index, target in enumerate(before):
        if target in left:
            del left[target]
            if index < count:
                result[index] = target
            else:
                moved.append(target)
    spare = iter([*moved, *left])
    return tuple(target if target is not None else next(spare) for target in result)


def plan(service: Service, slices: Iterable[Slice], place: Place, orders: Orders) -> Plan:
    """Returns everything of a Service; `orders` are those of the lists that exist."""
    result, known = Plan(), list(slices)
    no_internal = no_external = False
    for address, version in zip(service.cluster_ips, service.versions, strict=True):
        result.elements[f"cluster_ips{version}", packed(address)] = b""
        for port in service.ports:
            chosen = choose(_endpoints(known, version, port), place) if known else _NOBODY
            _Frontends(result, service, version, port, chosen, place, orders).add_all(address)
            no_internal |= service.internal_local and chosen.exist and not chosen.local
            no_external |= service.external_local and chosen.exist and not chosen.local
    result.no_local = no_internal, no_external
    if service.health_port:
        ready = {
            endpoint.address
            for slice_ in known
            for endpoint in slice_.endpoints
            if endpoint.state & READY and endpoint.node == place.node
        }
        result.local_ready = len(ready)
    return result


def _endpoints(slices: Iterable[Slice], version: int, port: Port) -> list[Endpoint]:
    """Returns the endpoints of a port, with address and port in their addresses; each once, the best if it is twice."""
    endpoints: dict[bytes, Endpoint] = {}
    for slice_ in slices:
        if slice_.version != version:
            continue
        for name, protocol, number in slice_.ports:
            if name != port.name or protocol != port.protocol:
                continue
            suffix = number.to_bytes(2, "big") + b"\0\0"
            for endpoint in slice_.endpoints:
                target = endpoint.address + suffix
                other = endpoints.get(target)
                if other is None or endpoint.state & READY > other.state & READY:
                    endpoints[target] = Endpoint(target, *endpoint[1:])
    return list(endpoints.values())


@dataclass(slots=True)
class _Frontends:
    """The frontends of one port in one address family."""

    result: Plan
    service: Service
    version: int
    port: Port
    chosen: Chosen
    place: Place
    orders: Orders

    def add_all(self, cluster_ip: str) -> None:
        service, port = self.service, self.port
        externals = [address for address in service.externals(self.version) if address != cluster_ip]
        is_external = bool(externals or port.node_port)
        ids: dict[str, bytes] = {}
        if not service.internal_local or is_external:
            ids["cluster"] = self._list("cluster", self.chosen.cluster)
        if service.internal_local or (service.external_local and is_external):
            ids["local"] = self._list("local", self.chosen.local)
        self._internal(frontend(self.version, cluster_ip, port.protocol, port.number), ids)
        for address in externals:
            self._external(frontend(self.version, address, port.protocol, port.number), ids, "external")
        if port.node_port:
            self._external(frontend(self.version, "", port.protocol, port.node_port), ids, "node")
        sources = [network for network in service.sources if network.version == self.version]
        if sources:
            for address in service.balancer_ips:
                if version_of(address) == self.version and address != cluster_ip:
                    self._limit(frontend(self.version, address, port.protocol, port.number), sources, address)

    def _put(self, name: str, key: bytes, data: bytes | str) -> None:
        self.result.elements[f"{name}{self.version}", key] = data

    def _lead(self, key: bytes, id_: bytes, target: Target) -> None:
        """Adds a frontend: its list, and the target that chooses from it."""
        self._put("frontends", key, id_[4:] + target.number)
        self.result.elements[TARGETS, target.number] = target.verdict

    def _list(self, policy: str, endpoints: Sequence[Endpoint]) -> bytes:
        """Adds a list of endpoints; returns its id."""
        id_ = list_id(self.service, self.version, self.port, policy)
        order = arrange(self.orders.get(id_, ()), [endpoint.address for endpoint in endpoints])
        if order:
            self.result.orders[id_] = order
        elements, name, node = self.result.elements, f"endpoints{self.version}", self.place.node
        for index, target in enumerate(order):
            elements[name, id_ + index.to_bytes(4, byteorder)] = target
            if self.service.affinity:
                self._put("members", id_ + bytes(4) + target, b"")
        for endpoint in endpoints:
            if endpoint.node == node:
                self.result.here.add((self.version, endpoint.address[:-4]))
        return id_

    def _internal(self, key: bytes, ids: Mapping[str, bytes]) -> None:
        local = self.service.internal_local
        endpoints = self.chosen.local if local else self.chosen.cluster
        self._watch_datagrams(key, endpoints)
        if not endpoints:
            self._put("dropped" if local and self.chosen.exist else "refused", key, b"")
            return
        target = Target("cluster", self.version, len(endpoints), 0, self.service.affinity)
        self._lead(key, ids["local" if local else "cluster"], target)

    def _external(self, key: bytes, ids: Mapping[str, bytes], kind: str) -> None:
        cluster, local = self.chosen
        affinity = self.service.affinity
        self._watch_datagrams(key, cluster + local if self.service.external_local else cluster)
        if not cluster:
            self._put("refused", key, b"")
            return
        if not self.service.external_local:
            self._lead(key, ids["cluster"], Target(kind, self.version, len(cluster), 0, affinity))
            return
        target = Target(f"{kind}-local", self.version, len(cluster), len(local), affinity)
        self._lead(key, ids["cluster"], target)
        if local:
            self._put("local_ids", key, ids["local"][4:])
        else:  # pods and this node itself are sent to others, all the rest ends here
            self._put("dropped", key, b"")

    def _limit(self, key: bytes, sources: Sequence[Network], address: str) -> None:
        """Only these networks may use an address, and the address itself: what comes from this node may have it."""
        self._put("limited", key, b"")
        own = type(sources[0])(address)
        for network in collapse_addresses([*sources, own]):  # type: ignore[type-var]  # all are of one family
            first, last = network.network_address.packed, network.broadcast_address.packed
            self._put("sources", key + first, key + last)

    def _watch_datagrams(self, key: bytes, endpoints: Sequence[Endpoint]) -> None:
        if self.port.protocol == UDP:
            self.result.datagrams[self.version, key] = frozenset(endpoint.address for endpoint in endpoints)
