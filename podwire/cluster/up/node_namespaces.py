"""The network, mount and PID namespaces of a node: created once, pinned, and entered by everything on the node.

They outlive all our processes: containers, shims and mounts live in them. `up` after a crash finds the same ones. The
first process of the PID namespace, its init, belongs to nobody and ends with the node.
"""

import contextlib
import errno
import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar, cast

from podwire.cluster.up import node_mounts
from podwire.cluster.up.layout import Layout
from podwire.linux.errors import LinuxError, NoSuchMount, NoSuchProcess, Refused
from podwire.linux.fs.mounts import KernelMounts, mounted
from podwire.linux.fs.trust import make_directory
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc import mount_namespaces, pid_namespaces
from podwire.linux.proc.namespaces import KernelNamespaces, identity

T = TypeVar("T")
Work = Callable[[], None]


class NotBuilt(Exception):
    """A node's mount namespace could not be created; says why."""


@dataclass(frozen=True, slots=True)
class NodeNamespaces:
    """The namespaces of one node."""

    layout: Layout
    name: str

    @property
    def net(self) -> Path:
        return self.layout.pin(self.name, "net")

    @property
    def mnt(self) -> Path:
        return self.layout.pin(self.name, "mnt")

    @property
    def pid(self) -> Path:
        """A cluster of a podwire without PID namespaces keeps none until it is created anew."""
        return self.layout.pin(self.name, "pid")

    @property
    def switch(self) -> Path:
        """The network namespace of the switch for simulated cards; not every node has one."""
        return self.layout.pin(self.name, "switch")

    def exists(self) -> bool:
        """Whether all are pinned, and processes can be created in them."""
        if not (mount_namespaces.is_pinned(self.net, "net") and mount_namespaces.is_pinned(self.mnt, "mnt")):
            return False
        return not self._has_pids() or bool(pid_namespaces.members(self.pid))

    def _has_pids(self) -> bool:
        return mount_namespaces.is_pinned(self.pid, "pid")

    def inodes(self) -> set[tuple[str, int]]:
        """Returns the inodes of the existing ones."""
        inodes = set()
        for kind in ("net", "mnt", "pid"):
            with contextlib.suppress(LinuxError):
                inodes.add((kind, identity(self.layout.pin(self.name, kind), kind)))
        return inodes

    def build(self, furnish: Work | None = None) -> None:
        """Creates all; what a crash left incomplete is removed first. `furnish` adds mounts.

        1. A private mount for the pins.  2. The network namespace.  3. The mount namespace, by a child that lives in it
        until it is pinned.  4. The PID namespace, by the init, a child of that child.
        """
        if self._has_pids():
            pid_namespaces.end(self.pid)
        self.remove()
        for source in node_mounts.sources(self.layout, self.name).values():
            mode = 0o700 if source.parent == self.layout.state else 0o755
            make_directory(source, mode, no_links_below=self.layout.no_links_below)
        # No other namespace may see this mount: the kernel refuses to pin a mount namespace where it would see
        # itself. It is a tmpfs, so that a reboot leaves no files that look like pins.
        mounts = KernelMounts()
        self.layout.pins.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not mounts.is_mounted(self.layout.pins):
            mounts.mount("podwire", self.layout.pins, "tmpfs", ["mode=0755", "size=1m", "nosuid", "nodev", "noexec"])
        mounts.set_propagation(self.layout.pins, "private")
        KernelNamespaces(self.net.parent, "net").create("net")
        with KernelNetwork(self.net) as network:
            network.links.change("lo", up=True)
        _pin_mounts(self, furnish)

    def enter(self) -> None:
        """Moves the calling process, which must have one thread and come from `fork`, to the node."""
        mount_namespaces.enter(net=self.net, mnt=self.mnt)

    def fork(self) -> int:
        """Like os.fork, with a child in the node's PID namespace. Raises NoSuchProcess without the node, or its init.

        The mount namespace is pinned last and unpinned first: while it is pinned, the PID namespace is, too, if the
        node has one. A child of a node that is just being built must not be outside of it.
        """
        if not mount_namespaces.is_pinned(self.mnt, "mnt"):
            raise NoSuchProcess(errno.ESRCH, f"fork into node {self.name}", "it does not exist")
        return pid_namespaces.fork_into(self.pid) if self._has_pids() else os.fork()

    def inside(self, work: Callable[[], T]) -> T:
        """Runs a function on the node, in a process of its own; its result or exception is pickled."""
        reads, writes = os.pipe2(os.O_CLOEXEC)
        child = self.fork()
        if child == 0:
            os.close(reads)
            _answer(writes, self.enter, work)
        os.close(writes)
        with os.fdopen(reads, "rb") as pipe:
            answer = pipe.read()
        os.waitpid(child, 0)
        if not answer:
            raise NotBuilt(f"node {self.name}: a process that was to look at it was killed")
        result, error = pickle.loads(answer)  # noqa: S301 - written by our own child
        if error is not None:
            raise error
        return cast("T", result)

    def remove(self) -> None:
        """Unpins all; they end with their last process."""
        for name, kind in (("mnt", "mnt"), ("pid", "pid"), ("net", "net"), ("switch", "net")):
            KernelNamespaces(self.net.parent, kind).remove(name)
        with contextlib.suppress(FileNotFoundError):
            self.net.parent.rmdir()


def remove_pins(layout: Layout) -> None:
    """Removes the private mount, when no node is pinned in it."""
    mounts = KernelMounts()
    with contextlib.suppress(NoSuchMount, FileNotFoundError):
        while True:
            mounts.unmount(layout.pins, lazily=True)
    with contextlib.suppress(FileNotFoundError):
        layout.pins.rmdir()


def _pin_mounts(space: NodeNamespaces, furnish: Work | None) -> None:
    """Pins a new mount namespace, created on this processor or on another one.

    The kernel allows pinning only in an older mount namespace, and compares sequence numbers. Since Linux 6.18 each
    processor has its own range of numbers, so a newer namespace may look older; but never on the processor on which our
    own namespace was created.
    """
    here = os.sched_getaffinity(0)
    for processors in (here, *({processor} for processor in sorted(here))):
        try:
            return _pin_one(space, processors, furnish)
        except Refused as error:
            refused = error
    raise NotBuilt(f"node {space.name}: {refused}")


def _answer(writes: int, enter: Work, work: Callable[[], T]) -> NoReturn:
    """Never returns: the rest is for the parent, outside of the node."""
    try:
        result, failure = None, None
        try:
            enter()
            result = work()
        except Exception as error:  # noqa: BLE001 - raised again by the parent
            failure = error
        with os.fdopen(writes, "wb") as pipe:
            pipe.write(pickle.dumps((result, failure)))
    finally:
        os._exit(0)


def _pin_one(space: NodeNamespaces, processors: set[int], furnish: Work | None) -> None:
    """Forks a child that creates the namespaces, pins them from here, and lets the child exit.

    The PID namespace is pinned first, so that a node with a mount namespace has one. If this process fails or is
    killed, the child ends the init, which would otherwise live on without a name.
    """
    reads, writes = os.pipe()
    go, goes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        os.close(goes)
        _live_in_it(space, processors, furnish, writes, go)
    os.close(writes)
    os.close(go)
    try:
        reason = os.read(reads, 65536).decode("utf-8", "replace")
        if reason != "made":
            raise NotBuilt(f"node {space.name}: {reason or 'its mount namespace was not made'}")
        mount_namespaces.pin(child, space.pid, "pid")
        mount_namespaces.pin(child, space.mnt)
        os.write(goes, b"k")
    finally:
        os.close(reads)
        os.close(goes)
        os.waitpid(child, 0)


def _live_in_it(space: NodeNamespaces, processors: set[int], furnish: Work | None, writes: int, go: int) -> NoReturn:
    """Never returns: the rest is for the parent, outside of the node."""
    init = 0
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.sched_setaffinity(0, processors)
        try:
            mount_namespaces.enter(net=space.net)
            mount_namespaces.unshare_mounts()
            _furnish(space, furnish)
            init = pid_namespaces.start_init()
        except Exception as error:  # noqa: BLE001 - reported to the parent, which reports it to the user
            os.write(writes, f"{type(error).__name__}: {error}".encode())
        else:
            os.write(writes, b"made")
        if not os.read(go, 1) and init:
            os.kill(init, signal.SIGKILL)
    finally:
        os._exit(0)


def _furnish(space: NodeNamespaces, more: Work | None) -> None:
    """1. Mounts of the host propagate in, ours do not propagate out.  2. Pins of other namespaces are unmounted: a copy
    would keep them alive.  3. The node's own `/sys`, which shows its own links.  4. The node's own paths; the
    rest of the cluster is hidden.  5. Additional mounts.  6. Mounts of a container propagate to other containers."""
    mounts = KernelMounts()
    mounts.set_propagation("/", "rslave")
    for mount in reversed(mounted()):
        if mount.kind == "nsfs" or Path(mount.target) == space.layout.pins:
            with contextlib.suppress(LinuxError):
                mounts.unmount(mount.target, lazily=True)
    _own_sys(mounts)
    shown = node_mounts.sources(space.layout, space.name)
    node_mounts.compose(node_mounts.covers(shown, lambda base: Path("/", base).is_dir()))
    for path in node_mounts.masked(space.layout, space.name):
        mounts.mount("podwire", path, "tmpfs", ["ro", "nosuid", "nodev", "noexec", "mode=0755", "size=4k"])
    if more is not None:
        more()
    mounts.set_propagation("/", "rshared")


def _own_sys(mounts: KernelMounts) -> None:
    below = [mount.target.removeprefix("/sys/") for mount in mounted() if mount.target.startswith("/sys/")]
    tops = [path for path in below if not any(path.startswith(f"{other}/") for other in below)]
    old = os.open("/sys", os.O_PATH | os.O_CLOEXEC)
    try:
        mounts.mount("sysfs", "/sys", "sysfs", ["nosuid", "nodev", "noexec"])
        for top in tops:
            mounts.bind(f"/proc/self/fd/{old}/{top}", f"/sys/{top}", recursive=True)
    finally:
        os.close(old)
