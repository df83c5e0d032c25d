"""Builds a node with its own namespaces, and builds it anew for a reboot."""

import contextlib
import uuid
from collections.abc import Callable
from pathlib import Path

from podwire.cluster.hardware import node_setup
from podwire.cluster.hardware.profile import Profile
from podwire.cluster.up import host_network, node_routes, nodes
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.cluster.up.slots import Slot
from podwire.cluster.up.state import NodeRecord, State
from podwire.linux.cgroups.groups import KernelCgroups
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.fs.trees import remove_path
from podwire.linux.fs.trust import make_directory
from podwire.linux.proc import pid_namespaces

BOOT_ID = "boot-id"
"""In `/run/podwire` of a node that was rebooted: its boot id instead of the machine's."""
_SHOWN_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RUN = ("run/cdi", "run/netns", "run/nri")
"""The directories of `/run` that a node has besides podwire's own."""
_OF_THE_CLUSTER = ("components", "nodes", "trace", "ui.link")
"""In `/run/podwire` of the first node: files of the control plane, which is not rebooted."""


def build_node(layout: Layout, decided: State, node: NodeRecord, *, ipv6: bool, with_boot_id: bool = False) -> None:
    """Creates what a node lacks: namespaces, veth pair, routes, simulated hardware. Idempotent."""
    space, slot = NodeNamespaces(layout, node.name), Slot(decided.slot)
    if not space.exists():
        space.build(_furnishing(decided.hardware, with_boot_id=with_boot_id))
    host_network.plug(layout, slot, node.number, space.net, ipv6=ipv6)
    numbers, tag = [other.number for other in decided.nodes], host_network.owner_tag(layout)
    joinable = bool(decided.advertise)
    node_routes.configure_node(slot, node.number, numbers, space.net, tag, ipv6=ipv6, joinable=joinable)
    if decided.hardware is not None:
        node_setup.set_up(decided.hardware, space, tag)


def reboot_node(layout: Layout, decided: State, node: NodeRecord) -> None:
    """Does to a node of a running cluster what a power cut does to a machine. Raises LinuxError, NotBuilt.

    1. The init of the node is killed, and with it all processes: components, shims, containers.  2. Its cgroups and its
    `/run` are removed; mounts, links and rules vanish with its namespaces.  3. It gets a new boot id.  4. It is built
    again. The supervisor, which is not on the node, starts the components again.
    """
    space, home = NodeNamespaces(layout, node.name), layout.home(node.name)
    pid_namespaces.end(space.pid)
    space.remove()
    KernelCgroups().end(nodes.cgroup_of(layout, node.name))
    kept = _OF_THE_CLUSTER if home == layout else ()
    for directory in (*(layout.standard(node.name) / path for path in _RUN), home.run):
        for path in directory.iterdir() if directory.is_dir() else ():
            if directory != home.run or path.name not in kept:
                remove_path(path)
    make_directory(home.run, no_links_below=layout.no_links_below)
    (home.run / BOOT_ID).write_text(f"{uuid.uuid4()}\n", encoding="ascii")
    build_node(layout, decided, node, ipv6=host_network.has_ipv6(), with_boot_id=True)


def _furnishing(profile: Profile | None, *, with_boot_id: bool) -> Callable[[], None]:
    hardware = node_setup.furnishing(profile)

    def furnish() -> None:
        if hardware is not None:
            hardware()
        if with_boot_id:
            with contextlib.suppress(FileNotFoundError):  # a kernel without boot ids
                KernelMounts().bind(Path("/run/podwire", BOOT_ID), _SHOWN_BOOT_ID)

    return furnish
