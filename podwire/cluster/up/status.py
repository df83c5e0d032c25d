"""How a cluster is: what its record says, what its supervisor last noted, what the kernel says about its processes."""

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
    """None where it is on the host itself, whose addresses change."""
    pod_ranges: tuple[str, ...]


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
    """Raises NewerState, BrokenState."""
    known = state.load(layout.record)
    if known is None:
        return Status(prefix=str(layout.prefix), state="absent")
    told = status_file.read(layout)
    alive = told if told is not None and status_file.is_alive(told) else None
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
        nodes=tuple(_node(Slot(known.slot), node) for node in known.nodes),
        runtime=known.runtime,
        kubeconfig=str(layout.kubeconfig),
        api_server=f"https://127.0.0.1:{Slot(known.slot).api_port}",
        kubelet_port=KUBELET_PORT,
        components=tuple(component for component in components if component is not None),
    )


def _node(slot: Slot, node: NodeRecord) -> NodeStatus:
    ipv6 = host_network.has_ipv6()
    addresses = slot.addresses(node.number, ipv6=ipv6) if node.own else ()
    return NodeStatus(
        name=node.name,
        namespaces=node.own,
        addresses=tuple(str(address.ip) for address in addresses),
        pod_ranges=tuple(map(str, slot.pod_ranges(node.number, ipv6=ipv6))),
    )


def _supervisor(told: SupervisorStatus) -> ComponentStatus:
    memory = status_file.memory(told)
    return ComponentStatus(
        name=status_file.SUPERVISOR, state="ready", pid=told.pid, since=told.since, restarts=0, memory_bytes=memory
    )


def _component(note: ComponentEntry) -> ComponentStatus | None:
    """None for what has done its one thing."""
    if note.ready and not note.pid:
        return None
    here = status_file.is_alive(note)
    return ComponentStatus(
        name=note.name,
        state="down" if not here else "ready" if note.ready else "starting",
        pid=note.pid if here else 0,
        since=note.since,
        restarts=note.restarts,
        memory_bytes=status_file.memory(note) if here else 0,
    )


def as_json(found: Status) -> Any:
    return msgspec.to_builtins(found)
