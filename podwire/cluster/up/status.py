"""The status of a cluster: its record, its supervisor's status file, and what the kernel knows about its processes."""

from typing import Any

import msgspec

from podwire.cluster.up import host_network, state, status_file
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.slots import KUBELET_PORT, Slot
from podwire.cluster.up.state import NodeRecord, State
from podwire.cluster.up.status_file import ComponentEntry, SupervisorStatus


class ComponentStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    state: str
    """ready, starting or down."""
    pid: int
    since: float
    restarts: int
    memory_bytes: int


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    namespaces: bool
    """Whether it has its own."""
    addresses: tuple[str, ...]
    """Empty for a node on the host itself, whose addresses change."""
    pod_ranges: tuple[str, ...]
    """Empty for a node that joined another cluster, which chooses them."""


class Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    prefix: str
    state: str
    """up, starting, stopped (its state is kept), or absent."""
    slot: int | None = None
    node: str = ""
    """The first."""
    nodes: tuple[NodeStatus, ...] = ()
    runtime: str = ""
    kubeconfig: str = ""
    api_server: str = ""
    kubelet_port: int = 0
    components: tuple[ComponentStatus, ...] = ()


def status(layout: Layout) -> Status:
    """Raises NewerFormat, BrokenState."""
    known = state.load(layout.record)
    if known is None:
        return Status(prefix=str(layout.prefix), state="absent")
    supervisor = status_file.read(layout)
    alive = supervisor if supervisor is not None and status_file.is_alive(supervisor) else None
    return _known(layout, known, alive)


def _known(layout: Layout, known: State, alive: SupervisorStatus | None) -> Status:
    components = (
        [] if alive is None else [_supervisor(alive), *(_component(component) for component in alive.components)]
    )
    return Status(
        prefix=str(layout.prefix),
        state="stopped" if alive is None else "up" if alive.up else "starting",
        slot=known.slot,
        node=known.nodes[0].name,
        nodes=tuple(_node(Slot(known.slot), node, joined=bool(known.joined)) for node in known.nodes),
        runtime=known.runtime,
        kubeconfig=str(layout.kubeconfig),
        api_server=known.joined or f"https://127.0.0.1:{Slot(known.slot).api_port}",
        kubelet_port=KUBELET_PORT,
        components=tuple(component for component in components if component is not None),
    )


def _node(slot: Slot, node: NodeRecord, *, joined: bool) -> NodeStatus:
    ipv6 = host_network.has_ipv6()
    addresses = slot.addresses(node.number, ipv6=ipv6) if node.own else ()
    return NodeStatus(
        name=node.name,
        namespaces=node.own,
        addresses=tuple(str(address.ip) for address in addresses),
        pod_ranges=() if joined else tuple(map(str, slot.pod_ranges(node.number, ipv6=ipv6))),
    )


def _supervisor(supervisor: SupervisorStatus) -> ComponentStatus:
    memory = status_file.memory(supervisor)
    return ComponentStatus(
        name=status_file.SUPERVISOR,
        state="ready",
        pid=supervisor.pid,
        since=supervisor.since,
        restarts=0,
        memory_bytes=memory,
    )


def _component(entry: ComponentEntry) -> ComponentStatus | None:
    """Returns None for a component that has finished its one task."""
    if entry.ready and not entry.pid:
        return None
    alive = status_file.is_alive(entry)
    return ComponentStatus(
        name=entry.name,
        state="down" if not alive else "ready" if entry.ready else "starting",
        pid=entry.pid if alive else 0,
        since=entry.since,
        restarts=entry.restarts,
        memory_bytes=status_file.memory(entry) if alive else 0,
    )


def as_json(found: Status) -> Any:
    return msgspec.to_builtins(found)
