"""Removes a cluster: all that `up` and its pods made, after a clean stop as after a crash. Again is fine.

Whatever fails is told in the end, and the record stays, so that another `down` goes on; what succeeded is not undone.
"""

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from podwire.cluster.up import component_processes, conflist, host_network, nodes, pod_removal, state
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces, remove_pins
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.state import BrokenState, State
from podwire.cluster.up.status_file import hold
from podwire.cluster.up.stop import StillThere, kill, stop
from podwire.linux.cgroups.groups import KernelCgroups
from podwire.linux.fs.mounts import KernelMounts, mounted

Step = Callable[[], None]

LEFT_TO_OTHERS = "slots"
"""Below the default prefix's /var/lib/podwire: the claims of all clusters."""


class NotRemoved(Exception):
    """What is left, and why."""


@dataclass(frozen=True, slots=True)
class Removal:
    """One cluster that is being removed."""

    layout: Layout
    state: State | None
    claims: SlotClaims

    @property
    def spaces(self) -> list[NodeNamespaces]:
        """Namespaces by the pins that there are, not by what is remembered."""
        names = [path.name for path in self.layout.pins.iterdir()] if self.layout.pins.is_dir() else []
        return [NodeNamespaces(self.layout, name) for name in sorted(names)]

    def steps(self) -> list[tuple[str, Step]]:
        """1. Pods.  2. Who is left on nodes.  3. Groups, mounts, namespaces, links."""
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
        standing = [space for space in self.spaces if space.stands()]
        if standing:
            used = [space for space in standing if (self.layout.home(space.name).state / "runtime").is_dir()]
            return pod_removal.ours(
                self.layout, [(nodes.runtime_on_node(self.layout, space.name), space) for space in used]
            )
        if not (self.layout.state / "runtime").is_dir():
            return []
        if self.state is None or not self.state.nodes[0].own:
            return pod_removal.ours(self.layout, [(nodes.runtime_on_host(self.layout), None)])
        return []  # the namespaces are gone, and all that was in them

    def end_residents(self) -> None:
        for space in self.spaces:
            if inodes := space.inodes():
                kill(component_processes.residents(inodes))

    def remove_groups(self) -> None:
        cgroups = KernelCgroups()
        for parent in (nodes.cgroup_of(self.layout, node) for node in self.layout.nodes()):
            cgroups.kill(parent)
            cgroups.remove(parent)
            with contextlib.suppress(OSError):
                Path("/sys/fs/cgroup/systemd", parent).rmdir()  # runc makes one there, too

    def unmount(self) -> None:
        """What is mounted below our directories in this mount namespace; nodes' own go with their namespaces."""
        mounts = KernelMounts()
        ours = [self.layout.state, self.layout.run, *(Path(path) for path in self._made_for_node())]
        for mount in reversed(mounted()):
            target = Path(mount.target)
            if target.is_relative_to(self.layout.pins):
                continue
            if any(target != place and target.is_relative_to(place) for place in ours):
                mounts.unmount(target, lazily=True)

    def _made_for_node(self) -> list[str]:
        """The standard directories that were not there before."""
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
        host_network.unforward(self.claims.end_forwarding(self.layout.prefix))

    def remove_files(self) -> None:
        """The record goes last: as long as it is there, this can be done again."""
        (self.layout.prefix / "etc/cni/net.d" / conflist.NAME).unlink(missing_ok=True)
        mounts = {Path(mount.target) for mount in mounted()}
        for path in map(Path, self._made_for_node()):
            if path not in mounts:  # `ip netns` makes one of /run/netns
                _remove_tree(path)
        for place in (self.layout.run, self.layout.logs, self.layout.state):
            for path in place.iterdir() if place.is_dir() else ():
                if path.name != LEFT_TO_OTHERS and path != self.layout.record:
                    _remove_tree(path)
        if self.layout.state.is_dir():
            state.forget(self.layout.record)
        for made in self.state.made if self.state else ():
            with contextlib.suppress(OSError):
                Path(made).rmdir()


def down(layout: Layout, claims: SlotClaims, *, force: bool = False) -> bool:
    """Remove it all; False when there was nothing. Raises NotRemoved, NewerState, StillThere, Held.

    Files go last, and only when everything else is gone, or by `force`: without them nobody could go on. What still has
    a mount in it is never removed, for that would remove what is mounted.
    """
    try:
        known = state.load(layout.record)
    except BrokenState:
        known = None
    if not _is_there(layout, claims):
        return False
    stop(layout)
    lock = hold(layout)  # nobody brings it up while it is being removed
    try:
        _remove(Removal(layout, known, claims), force=force)
    finally:
        os.close(lock)
    return True


def _is_there(layout: Layout, claims: SlotClaims) -> bool:
    """Whether `up` was here. Programs that run on their own keep state below a prefix, too, which is not ours."""
    return any(path.exists() for path in (layout.record, layout.marks, layout.pins)) or bool(claims.of(layout.prefix))


def _remove(removal: Removal, *, force: bool) -> None:
    failed = [told for name, step in removal.steps() if (told := _tried(name, step))]
    if failed and not force:
        raise NotRemoved("; ".join(failed))
    removal.remove_files()
    removal.claims.release(removal.layout.prefix)
    if failed:
        raise NotRemoved("; ".join(failed))


def _tried(name: str, step: Step) -> str:
    """What went wrong, in words."""
    try:
        step()
    except (NotRemoved, StillThere, OSError) as error:
        return f"{name}: {error}"
    return ""


def _remove_tree(path: Path) -> None:
    if held := [mount.target for mount in mounted() if Path(mount.target).is_relative_to(path)]:
        raise NotRemoved(f"{path} stays: {held[0]} is a mount")
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
