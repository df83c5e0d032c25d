"""Everything that is known of the cluster, and which Services have changed since the last write to the kernel. Pure.

A plan is computed when it is needed, and not kept: before the first change of a Service, from what is known then, and
again when it is written to the kernel. Only the orders of the lists are kept, which do not follow from the objects.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from podwire.linux.net.address_text import packed
from podwire.proxy.plan import NOTHING, Key, Order, Plan, frontend, plan
from podwire.proxy.topology import Place
from podwire.proxy.values import Name, Service, Slice, version_of

Row = tuple[Key, bytes | str]
_ALLOCATED, _NAMED = 0, 1
_ADDRESS_LENGTHS, _PORT_LENGTH = {4: 4, 16: 6}, 8


class Difference(NamedTuple):
    """How the kernel differs from what is known."""

    deleted: list[Row]
    added: list[Row]
    datagrams: dict[tuple[int, bytes], frozenset[bytes]]
    """UDP frontends that have lost an endpoint, or got the first one; with those that they have now."""
    changed: list[str]
    """The times of the changes that led here, as the API server has them."""


class Model:
    """Services, slices, and what was made of them."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.services: dict[Name, Service] = {}
        self.slices: dict[Name, Slice] = {}
        """By their own namespace and name."""
        self._of: dict[Name, tuple[Name, ...]] = {}
        """The slices of each Service."""
        self._orders: dict[bytes, Order] = {}
        self._here: Counter[tuple[int, bytes]] = Counter()
        """The number of Services that have an endpoint of this node."""
        self._owners: dict[bytes, Name] = {}
        """The Service that has a cluster address, a frontend or a node port: keys of each family and kind have a length
        of their own."""
        self._rivals: dict[bytes, list[tuple[int, Name]]] = {}
        """All Services that want a key, with their ranks, in the order in which they came; if there are several."""
        self._lost: dict[Name, set[bytes]] = {}
        """Keys that a Service wants and another one has."""
        self._before: dict[Name, Plan] = {}
        self._changed: list[str] = []
        self._with_health: set[Name] = set()
        self.datagrams: dict[tuple[int, bytes], frozenset[bytes]] = {}
        """UDP frontends and their endpoints, when `everything` was last written; those that were gone by then, too."""
        self.no_local: dict[Name, tuple[bool, bool]] = {}
        """Services of which this node has no endpoint, though internal or external traffic must stay on it."""

    @property
    def is_dirty(self) -> bool:
        return bool(self._before)

    def slices_of(self, name: Name) -> list[Slice]:
        return [self.slices[key] for key in self._of.get(name, ())]

    def plan_of(self, name: Name) -> Plan:
        service = self.services.get(name)
        if service is None:
            return NOTHING
        result = plan(service, self.slices_of(name), self.place, self._orders)
        if name in self._lost:
            _leave_out(result, self._lost[name])
        return result

    def put_service(self, name: Name, service: Service | None) -> None:
        """A Service as it is now; None: it is gone, or has no addresses."""
        before = self.services.get(name)
        if service == before:
            return
        self._touch(name)
        self._claim(name, before, service)
        self._with_health.discard(name)
        if service is None:
            del self.services[name]
            return
        self.services[name] = service
        if service.health_port:
            self._with_health.add(name)

    def put_slice(self, key: Name, slice_: Slice | None) -> None:
        """A slice as it is now; None: it is gone."""
        before = self.slices.get(key)
        if before == slice_:
            return
        if before is not None:
            self._touch(before.service)
        if slice_ is not None:
            self._touch(slice_.service)
            if slice_.changed and (before is None or before.changed != slice_.changed):
                self._changed.append(slice_.changed)
        if before is not None:
            left = tuple(other for other in self._of[before.service] if other != key)
            self._of[before.service] = left
            if not left:
                del self._of[before.service]
            del self.slices[key]
        if slice_ is not None:
            self.slices[key] = slice_
            self._of[slice_.service] = (*self._of.get(slice_.service, ()), key)

    def _touch(self, name: Name) -> None:
        if name not in self._before:
            self._before[name] = self.plan_of(name)

    def _claim(self, name: Name, before: Service | None, service: Service | None) -> None:
        """Notes what a Service wants for itself; another one that gets or loses something thereby has changed.

        A cluster address belongs to the Service for which the API server allocated it, also when another one has named
        it as an external address before. Everything else belongs to the first that wants it.
        """
        old, new = _keys(before), _keys(service)
        if old == new:
            return
        for key, rank in old.items():
            if new.get(key) != rank:
                self._release(name, key)
        for key, rank in new.items():
            if old.get(key) != rank:
                self._want(name, key, rank)

    def _want(self, name: Name, key: bytes, rank: int) -> None:
        owner = self._owners.setdefault(key, name)
        if owner == name:
            return
        rivals = self._rivals.setdefault(key, [(_keys(self.services[owner])[key], owner)])
        rivals.append((rank, name))
        self._decide(key, rivals)

    def _release(self, name: Name, key: bytes) -> None:
        rivals = [(rank, other) for rank, other in self._rivals.pop(key, ()) if other != name]
        self._forget_loss(name, key)
        if not rivals:
            del self._owners[key]
            return
        if len(rivals) > 1:
            self._rivals[key] = rivals
        self._decide(key, rivals)

    def _decide(self, key: bytes, rivals: list[tuple[int, Name]]) -> None:
        winner, owner = min(rivals, key=lambda rival: rival[0])[1], self._owners[key]
        if winner != owner:
            for name in (winner, owner):
                self._touch(name)
            self._owners[key] = winner
        for _, name in rivals:
            if name == winner:
                self._forget_loss(name, key)
            else:
                self._lost.setdefault(name, set()).add(key)

    def _forget_loss(self, name: Name, key: bytes) -> None:
        lost = self._lost.get(name, set())
        lost.discard(key)
        if not lost:
            self._lost.pop(name, None)

    def contested(self) -> list[tuple[Name, Name]]:
        """Returns pairs of a Service that has an address or node port, and one that wants it."""
        pairs = {
            (self._owners[key], other): None
            for key, rivals in self._rivals.items()
            for _, other in rivals
            if other != self._owners[key]
        }
        return list(pairs)

    def difference(self) -> Difference:
        """Returns what has changed since this was called last; from now on it counts as written."""
        deleted: list[Row] = []
        added: list[Row] = []
        datagrams: dict[tuple[int, bytes], frozenset[bytes]] = {}
        gone: set[tuple[int, bytes]] = set()
        here: Counter[tuple[int, bytes]] = Counter()
        pending, self._before = self._before, {}
        changed, self._changed = self._changed, []
        for name, before in pending.items():
            after = self.plan_of(name)
            self._note(name, before, after)
            old, new = before.elements, after.elements
            deleted += [(key, data) for key, data in old.items() if new.get(key) != data]
            added += [(key, data) for key, data in new.items() if old.get(key) != data]
            here.update(after.here)
            here.subtract(before.here)
            for frontend_, endpoints in after.datagrams.items():
                had = before.datagrams.get(frontend_)
                if (had is not None and had - endpoints) or (endpoints and not had):
                    datagrams[frontend_] = endpoints
            gone.update(key for key in before.datagrams if key not in after.datagrams)
        for frontend_ in gone:  # unless another Service has it now
            datagrams.setdefault(frontend_, frozenset())
        for (version, address), change in here.items():
            count = self._here[version, address]
            self._here[version, address] = count + change
            row = (f"hairpin{version}", address + address), b""
            if not count and change:
                added.append(row)
            elif count and not count + change:
                deleted.append(row)
                del self._here[version, address]
        return Difference(deleted, added, datagrams, changed)

    def everything(self) -> Iterator[Row]:
        """Yields all elements; from now on everything counts as written."""
        self.datagrams = {key: frozenset() for plan_ in self._before.values() for key in plan_.datagrams}
        self._before, self._here, self._changed = {}, Counter(), []
        self._orders.clear()
        self.no_local.clear()
        for name in self.services:
            after = self.plan_of(name)
            self._note(name, NOTHING, after)
            self._here.update(after.here)
            self.datagrams.update(after.datagrams)
            yield from after.elements.items()
        yield from self.hairpin()

    def _note(self, name: Name, before: Plan, after: Plan) -> None:
        for id_ in before.orders:
            if id_ not in after.orders:
                self._orders.pop(id_, None)
        self._orders.update(after.orders)
        if any(after.no_local):
            self.no_local[name] = after.no_local
        else:
            self.no_local.pop(name, None)

    def hairpin(self) -> Iterator[Row]:
        """Yields the elements that Services share: endpoints of this node."""
        for (version, address), count in self._here.items():
            if count:
                yield (f"hairpin{version}", address + address), b""

    def health_ports(self) -> Mapping[int, tuple[Name, int]]:
        """Returns the ports at which load balancers ask: the Service, and its ready endpoints on this node."""
        names = sorted(self._with_health)
        return {self.services[name].health_port: (name, self.plan_of(name).local_ready) for name in names}


def _keys(service: Service | None) -> dict[bytes, int]:
    """Returns everything that only one Service can have, with its rank: the lowest wins."""
    keys: dict[bytes, int] = {}
    if service is None:
        return keys
    for address in service.cluster_ips:
        version = version_of(address)
        externals = service.externals(version) if service.external_ips or service.balancer_ips else ()
        keys[packed(address)] = _ALLOCATED
        for port in service.ports:
            for external in externals:
                keys.setdefault(frontend(version, external, port.protocol, port.number), _NAMED)
            if port.node_port:
                keys[frontend(version, "", port.protocol, port.node_port)] = _NAMED
            keys[frontend(version, address, port.protocol, port.number)] = _ALLOCATED
    return keys


def _leave_out(plan_: Plan, lost: set[bytes]) -> None:
    """Removes what another Service has from a plan."""
    for key in lost:
        if len(key) in _ADDRESS_LENGTHS:
            version = _ADDRESS_LENGTHS[len(key)]
            plan_.elements.pop((f"cluster_ips{version}", key), None)
            continue
        version = _ADDRESS_LENGTHS[len(key) - _PORT_LENGTH]
        for set_ in ("frontends", "local_ids", "refused", "dropped", "limited"):
            plan_.elements.pop((f"{set_}{version}", key), None)
        sources = [row for row in plan_.elements if row[0] == f"sources{version}" and row[1].startswith(key)]
        for row in sources:
            del plan_.elements[row]
        plan_.datagrams.pop((version, key), None)


def names(keys: Iterable[Name]) -> str:
    """Returns Services as people write them."""
    return ", ".join(f"{namespace}/{name}" for namespace, name in keys)
