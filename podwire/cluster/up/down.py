"""Removes a cluster: everything that `up` and its pods created, after a clean stop as after a crash. Idempotent.

Steps that fail are reported at the end, and the record stays, so that another `down` continues.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from podwire.cluster.join import machine_network
from podwire.cluster.up import (
    component_processes,
    conflist,
    host_network,
    named_clusters,
    node_routes,
    nodes,
    pod_removal,
    state,
)
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces, remove_pins
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.slots import Slot
from podwire.cluster.up.state import BrokenState, State
from podwire.cluster.up.status_file import lock_prefix
from podwire.cluster.up.stop import StillThere, kill, stop
from podwire.linux.cgroups.groups import KernelCgroups
from podwire.linux.fs.mounts import KernelMounts, mounted
from podwire.linux.fs.trees import remove_tree
from podwire.linux.fs.trust import opened_parent
from podwire.linux.nft.table import KernelRuleset
from podwire.nriplugins.network.policy.program import TABLE as POLICY_TABLE

Step = Callable[[], None]

SHARED = "slots"
"""Below /var/lib/podwire of the default prefix: the slot claims of all clusters."""


class NotRemoved(Exception):
    """Says what is left, and why."""


@dataclass(frozen=True, slots=True)
class Removal:
    """One cluster that is being removed."""

    layout: Layout
    state: State | None
    claims: SlotClaims

    @property
    def spaces(self) -> list[NodeNamespaces]:
        """Returns the namespaces that are pinned, whatever the record says."""
        names = [path.name for path in self.layout.pins.iterdir()] if self.layout.pins.is_dir() else []
        return [NodeNamespaces(self.layout, name) for name in sorted(names)]

    def steps(self) -> list[tuple[str, Step]]:
        """1. Pods.  2. Remaining processes on nodes.  3. Cgroups, mounts, namespaces, links."""
        return [
            ("pods", self.remove_pods),
            ("processes on nodes", self.end_residents),
            ("cgroups", self.remove_groups),
            ("mounts", self.unmount),
            ("namespaces", self.remove_spaces),
            ("network", self.disconnect),
        ]

    def remove_pods(self) -> None:
        if self.state is not None and self.state.runtime != "podwire":
            failed = pod_removal.foreign(self.layout, self.state.runtime, self.layout.prefix / "var/lib/kubelet/pods")
        else:
            failed = self._remove_own_pods()
        if failed:
            raise NotRemoved("; ".join(failed))

    def _remove_own_pods(self) -> list[str]:
        present = [space for space in self.spaces if space.exists()]
        if present:
            used = [space for space in present if _has_run(self.layout.home(space.name))]
            return pod_removal.ours(
                self.layout, [(nodes.runtime_on_node(self.layout, space.name), space) for space in used]
            )
        if not _has_run(self.layout):
            return []
        if self.state is None or not self.state.nodes[0].own:
            return pod_removal.ours(self.layout, [(nodes.runtime_on_host(self.layout), None)])
        return []  # the namespaces are gone, with everything in them

    def end_residents(self) -> None:
        for space in self.spaces:
            if inodes := space.inodes():
                kill(component_processes.residents(inodes))

    def remove_groups(self) -> None:
        cgroups = KernelCgroups()
        for parent in (nodes.cgroup_of(self.layout, node) for node in self.layout.nodes()):
            cgroups.end(parent)
            with contextlib.suppress(OSError):
                Path("/sys/fs/cgroup/systemd", parent).rmdir()  # runc creates one there, too

    def unmount(self) -> None:
        """Unmounts everything below our directories in this mount namespace; mounts of nodes vanish with their
        namespaces."""
        mounts = KernelMounts()
        ours = [self.layout.state, self.layout.run, *(Path(path) for path in self._made_for_node())]
        for mount in reversed(mounted()):
            target = Path(mount.target)
            if target.is_relative_to(self.layout.pins):
                continue
            if any(target != place and target.is_relative_to(place) for place in ours):
                mounts.unmount(target, lazily=True)

    def _made_for_node(self) -> list[str]:
        """Returns the standard directories that `up` created."""
        standard = [
            str(self.layout.prefix / path) for path in ("var/lib/kubelet", "var/log/pods", "var/log/containers")
        ]
        standard += [str(self.layout.prefix / path) for path in ("run/cdi", "run/netns", "run/nri", "var/lib/cni")]
        made = self.state.made if self.state else ()
        return [path for path in standard if path in made]

    def remove_spaces(self) -> None:
        for space in self.spaces:
            space.remove()
        remove_pins(self.layout)

    def disconnect(self) -> None:
        slots = set(self.claims.of(self.layout.prefix)) | ({self.state.slot} if self.state else set())
        host_network.disconnect(self.layout, sorted(slots))
        if self.state is not None and not self.state.nodes[0].own:
            host_network.disconnect_pods()
            if self.state.runtime == "podwire":
                KernelRuleset().delete_table(POLICY_TABLE)
        if self.state is not None and self.state.joined:
            machine_network.remove_all()
            KernelRuleset().delete_table(node_routes.TABLE)
        elif self.state is not None and self.state.advertise:
            slot = Slot(self.state.slot)
            machine_network.remove_all((slot.pods, slot.nodes, slot.own6), slot.vni)
            if not self.state.nodes[0].own:
                KernelRuleset().delete_table(node_routes.TABLE)
        host_network.unforward(self.claims.end_forwarding(self.layout.prefix))

    def remove_files(self) -> None:
        """The record is removed last: as long as it exists, `down` can be repeated."""
        _remove_tree(self.layout, self.layout.prefix / "etc/cni/net.d" / conflist.NAME)
        mounts = {Path(mount.target) for mount in mounted()}
        for path in map(Path, self._made_for_node()):
            if path not in mounts:  # `ip netns` mounts /run/netns
                _remove_tree(self.layout, path)
        for place in (self.layout.run, self.layout.logs, self.layout.state):
            for path in place.iterdir() if place.is_dir() else ():
                if path.name != SHARED and path != self.layout.record:
                    _remove_tree(self.layout, path)
        if self.layout.state.is_dir():
            state.remove(self.layout.record)
        for made in self.state.made if self.state else ():
            with contextlib.suppress(OSError), opened_parent(made, no_links_below=self.layout.no_links_below) as parent:
                if parent is not None:
                    os.rmdir(parent[1], dir_fd=parent[0])
        named_clusters.remove_directory()


def down(layout: Layout, claims: SlotClaims, *, force: bool = False) -> bool:
    """Removes everything; returns False without a cluster. Raises NotRemoved, NewerFormat, StillThere, PrefixLocked.

    Files are removed last, and only when everything else is gone, or by `force`: without them `down` could not
    continue. A directory with a mount in it is never removed, because that would remove the mounted files.
    """
    try:
        known = state.load(layout.record)
    except BrokenState:
        known = None
    if not _exists(layout, claims):
        return False
    stop(layout)
    with lock_prefix(layout):  # no `up` while it is being removed
        remove_locked(layout, known, claims, force=force)
    return True


def remove_locked(layout: Layout, known: State | None, claims: SlotClaims, *, force: bool = False) -> None:
    """Removes everything of a cluster whose processes have ended; the caller has the lock. Raises NotRemoved."""
    _remove(Removal(layout, known, claims), force=force)


def _exists(layout: Layout, claims: SlotClaims) -> bool:
    """Whether `up` was here. Programs that run alone keep state below a prefix, too, which is not ours."""
    return (
        state.exists(layout.record)
        or layout.component_tags.exists()
        or layout.pins.exists()
        or bool(claims.of(layout.prefix))
    )


def _remove(removal: Removal, *, force: bool) -> None:
    failed = [error for name, step in removal.steps() if (error := _tried(name, step))]
    if failed and not force:
        raise NotRemoved("; ".join(failed))
    removal.remove_files()
    removal.claims.release(removal.layout.prefix)
    if failed:
        raise NotRemoved("; ".join(failed))


def _tried(name: str, step: Step) -> str:
    """Returns the error message; empty on success."""
    try:
        step()
    except (NotRemoved, StillThere, OSError) as error:
        return f"{name}: {error}"
    return ""


def _has_run(home: Layout) -> bool:
    """Whether a runtime has records; its directory exists from the start."""
    records = home.state / "runtime"
    return records.is_dir() and any(records.iterdir())


def _remove_tree(layout: Layout, path: Path) -> None:
    """Removes a file or a tree; no link on the way to it is followed, and none in it."""
    if held := [mount.target for mount in mounted() if Path(mount.target).is_relative_to(path)]:
        raise NotRemoved(f"{path} is not removed: {held[0]} is a mount point")
    with opened_parent(path, no_links_below=layout.no_links_below) as parent:
        if parent is not None:
            remove_tree(parent[0], os.fsencode(parent[1]))
