"""Devices and pools as the allocator sees them; rebuilt when a ResourceSlice changes."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from podwire.objects import node_affinity, quantity
from podwire.objects.device_taints import DeviceTaint, DeviceTaintRule
from podwire.objects.node_affinity import Wanted
from podwire.objects.nodes import Node
from podwire.objects.slices import CapacityPolicy, Device, ResourceSlice, ResourceSliceSpec, Value
from podwire.protocols.cel import Values


@dataclass(frozen=True, slots=True)
class NodeScope:
    """One node, the nodes that a selector matches, or all nodes; otherwise none."""

    node: str = ""
    selector: Mapping[str, Any] | None = None
    everywhere: bool = False
    _picks: Wanted | None = field(default=None, repr=False, compare=False)

    def includes(self, node: Node) -> bool:
        if self.node:
            return self.node == node.name
        return self.everywhere or (self._picks is not None and self._picks(node))


def _scope(spec: ResourceSliceSpec, device: Device) -> NodeScope:
    where = device if spec.per_device_node_selection else spec
    picks = node_affinity.selected(where.node_selector) if where.node_selector else None
    return NodeScope(where.node_name, where.node_selector, where.all_nodes, picks)


Identity = tuple[str, str, str]
"""Driver, pool and device name; unique in the cluster."""

BINDING = "has binding conditions, which this scheduler does not wait for"
COUNTERS = "takes from shared counters, which this scheduler does not count"


class Attribute(NamedTuple):
    type: str
    value: Value


class Capacity(NamedTuple):
    name: str
    """The name as the device writes it."""
    nano: int
    policy: CapacityPolicy | None


class Candidate:
    """A device with everything precomputed that the search needs."""

    __slots__ = (
        "attributes", "capacity", "device", "driver", "identity", "matched", "node_scope", "refused", "shared",
        "taints", "values",
    )  # fmt: skip

    def __init__(
        self, driver: str, pool: str, device: Device, where: NodeScope, taints: tuple[DeviceTaint, ...]
    ) -> None:
        self.driver = driver
        self.identity: Identity = (driver, pool, device.name)
        self.device = device
        self.node_scope = where
        self.taints = taints
        self.shared = device.allow_multiple_allocations
        self.refused = BINDING if device.binding_conditions else COUNTERS if device.consumes_counters else ""
        """Why this scheduler never allocates the device; empty when it does."""
        self.attributes = {
            qualified(name, driver): Attribute(attribute.type, value)
            for name, attribute in device.attributes.items()
            if (value := attribute.value) is not None
        }
        self.capacity: dict[str, Capacity] = {}
        for name, capacity in device.capacity.items():
            try:
                amount = quantity.parse(str(capacity.value)).nano
            except ValueError as error:  # costs the device, not all others
                self.refused = f"{name}: {error}"
            else:
                self.capacity[qualified(name, driver)] = Capacity(name, amount, capacity.request_policy)
        self.values: Values | None = None
        """The CEL value of the device, built for the first expression."""
        self.matched: dict[tuple[str, ...], bool | str] = {}
        """Results per tuple of expressions; a text says which expression failed and why."""

    @property
    def name(self) -> str:
        return self.device.name


def qualified(name: str, driver: str) -> str:
    """Qualifies a name without a domain with the driver's name."""
    return name if "/" in name else f"{driver}/{name}"


_serial_numbers = itertools.count()


class Pool:
    """The devices of one driver's pool, all of the newest generation."""

    __slots__ = ("devices", "driver", "key", "matching", "name", "node", "problem", "serial")

    def __init__(self, key: tuple[str, str], node: str, devices: Sequence[Candidate], problem: str) -> None:
        self.serial = next(_serial_numbers)
        self.key = key
        self.driver, self.name = key
        self.devices = tuple(devices)
        self.problem = problem
        """Why the devices cannot be used: the pool is being updated, or is inconsistent."""
        self.node = node
        """The node of all its devices; empty when they differ or are not local to one node."""
        self.matching: dict[tuple[str, ...], tuple[Candidate, ...]] = {}
        """Devices that match, per tuple of expressions."""


def pool_of(slices: Iterable[ResourceSlice], rules: Iterable[DeviceTaintRule]) -> Pool:
    """Builds a pool from all slices that name it; older generations are ignored."""
    given = sorted(slices, key=lambda item: item.name)
    newest = max(slice_.spec.pool.generation for slice_ in given)
    current = [slice_ for slice_ in given if slice_.spec.pool.generation == newest]
    key, rules = current[0].pool, tuple(rules)
    devices = [_candidate(key, slice_, device, rules) for slice_ in current for device in slice_.spec.devices]
    nodes = {slice_.spec.node_name for slice_ in current}
    return Pool(key, nodes.pop() if len(nodes) == 1 else "", devices, _problem(current, devices))


def _candidate(
    key: tuple[str, str], of: ResourceSlice, device: Device, rules: tuple[DeviceTaintRule, ...]
) -> Candidate:
    added = tuple(rule.spec.taint for rule in rules if rule.covers(*key, device.name))
    return Candidate(*key, device, _scope(of.spec, device), (*device.taints, *added))


def _problem(current: Sequence[ResourceSlice], devices: Sequence[Candidate]) -> str:
    driver, name = current[0].pool
    wanted = current[0].spec.pool.resource_slice_count
    if len(current) != wanted:
        return f"resource pool {driver}/{name} is currently being updated"
    twice = [name for name, times in Counter(device.name for device in devices).items() if times > 1]
    return f"resource pool {driver}/{name} is invalid: duplicate device name {twice[0]}" if twice else ""


class Inventory:
    """All pools, indexed by node."""

    def __init__(self) -> None:
        self._slices: dict[str, ResourceSlice] = {}
        self._rules: dict[str, DeviceTaintRule] = {}
        self._names: dict[tuple[str, str], set[str]] = {}
        self._pools: dict[tuple[str, str], Pool] = {}
        self._stale: set[tuple[str, str]] = set()
        self._local: dict[str, list[Pool]] = {}
        self._near: dict[str, Sequence[Pool]] = {}
        self._wide: list[Pool] = []

    def put_slice(self, given: ResourceSlice) -> None:
        self.drop_slice(given.name)
        self._slices[given.name] = given
        self._names.setdefault(given.pool, set()).add(given.name)
        self._stale.add(given.pool)

    def drop_slice(self, name: str) -> None:
        if (known := self._slices.pop(name, None)) is not None:
            self._names[known.pool].discard(name)
            self._stale.add(known.pool)

    def put_rule(self, rule: DeviceTaintRule) -> None:
        self._rules[rule.name] = rule
        self._stale.update(self._names)

    def drop_rule(self, name: str) -> None:
        self._rules.pop(name, None)
        self._stale.update(self._names)

    def near(self, node: str) -> Sequence[Pool]:
        """Returns the pools that may have devices for a node, in the order in which they are tried."""
        if self._stale:
            self._refresh()
        near = self._near.get(node)
        if near is None:
            near = self._near[node] = sorted((*self._local.get(node, ()), *self._wide), key=_by_key)
        return near

    def lacks(self, identity: Identity) -> bool:
        """Whether a device does not exist although all slices of its pool are known; a pool without slices may be
        about to be published again."""
        if self._stale:
            self._refresh()
        pool = self._pools.get(identity[:2])
        return pool is not None and not pool.problem and all(device.identity != identity for device in pool.devices)

    def _refresh(self) -> None:
        for key in self._stale:
            names = self._names.get(key)
            if names:
                self._pools[key] = pool_of((self._slices[name] for name in names), self._rules.values())
            else:
                self._names.pop(key, None)
                self._pools.pop(key, None)
        self._stale.clear()
        self._local, self._near, self._wide = {}, {}, []
        for pool in sorted(self._pools.values(), key=_by_key):
            (self._local.setdefault(pool.node, []) if pool.node else self._wide).append(pool)


def _by_key(pool: Pool) -> tuple[str, str]:
    return pool.key
