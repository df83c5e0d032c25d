"""A node's own network and mount namespaces: made once, pinned, and entered by whatever runs on the node.

They outlive every process of ours: containers, shims and mounts live in them. `up` after a crash finds the same ones.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from podwire.cluster.up import node_mounts
from podwire.cluster.up.layout import Layout
from podwire.linux.errors import LinuxError, NoSuchMount, Refused
from podwire.linux.fs.mounts import KernelMounts, mounted
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc import mount_namespaces
from podwire.linux.proc.namespaces import KernelNamespaces, identity, in_thread

T = TypeVar("T")
Work = Callable[[], None]


class NotBuilt(Exception):
    """A node's mount namespace could not be made; says why."""


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
    def switch(self) -> Path:
        """The network beside it that its simulated cards are plugged into; not every node has one."""
        return self.layout.pin(self.name, "switch")

    def stands(self) -> bool:
        """Whether both are there, whole."""
        return mount_namespaces.is_pinned(self.net, "net") and mount_namespaces.is_pinned(self.mnt, "mnt")

    def inodes(self) -> set[tuple[str, int]]:
        """The identities of those that are there."""
        found = set()
        for kind in ("net", "mnt"):
            with contextlib.suppress(LinuxError):
                found.add((kind, identity(self.layout.pin(self.name, kind), kind)))
        return found

    def build(self, furnish: Work | None = None) -> None:
        """Make both, from nothing: what a crash left half made is removed first. `furnish` adds to what is mounted.

        1. A private mount to pin them in.  2. The network namespace.  3. The mount namespace, by a child that lives in
        it until it is pinned.
        """
        self.remove()
        for source in node_mounts.sources(self.layout, self.name).values():
            source.mkdir(mode=0o755, parents=True, exist_ok=True)
        _private_mount(self.layout.pins)
        KernelNamespaces(self.net.parent, "net").create("net")
        with KernelNetwork(self.net) as network:
            network.links.change("lo", up=True)
        _pin_mounts(self, furnish)

    def enter(self) -> None:
        """The calling process, which has one thread, is on the node from now on."""
        mount_namespaces.enter(net=self.net, mnt=self.mnt)

    def inside(self, work: Callable[[], T]) -> T:
        """Do it on the node, in a thread that ends with it."""

        def entered() -> T:
            mount_namespaces.alone()
            self.enter()
            return work()

        return in_thread(entered)

    def remove(self) -> None:
        """Unpin all; they end with the last process that is in them."""
        for name, kind in (("mnt", "mnt"), ("net", "net"), ("switch", "net")):
            KernelNamespaces(self.net.parent, kind).remove(name)
        with contextlib.suppress(FileNotFoundError):
            self.net.parent.rmdir()


def remove_pins(layout: Layout) -> None:
    """The private mount, once no node is pinned in it."""
    mounts = KernelMounts()
    with contextlib.suppress(NoSuchMount, FileNotFoundError):
        while True:
            mounts.unmount(layout.pins, lazily=True)
    with contextlib.suppress(FileNotFoundError):
        layout.pins.rmdir()


def _private_mount(path: Path) -> None:
    """A mount whose changes no other namespace sees: the kernel refuses to pin a mount namespace where it sees the pin.

    In memory, so that a reboot leaves no files that look like pins.
    """
    mounts = KernelMounts()
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not mounts.is_mounted(path):
        mounts.mount("podwire", path, "tmpfs", ["mode=0755", "size=1m", "nosuid", "nodev", "noexec"])
    mounts.set_propagation(path, "private")


def _pin_mounts(space: NodeNamespaces, furnish: Work | None) -> None:
    """Pin a new mount namespace, made on this processor or on another one.

    The kernel lets a mount namespace be pinned only in an older one, and it tells the age by a number. Since Linux 6.18
    each processor hands out numbers from a stock of its own, so a newer one may look older; but on the processor on
    which our own was made, it never does.
    """
    here = os.sched_getaffinity(0)
    for place in (here, *({processor} for processor in sorted(here))):
        try:
            return _pin_one(space, place, furnish)
        except Refused as error:
            refused = error
    raise NotBuilt(f"node {space.name}: {refused}")


def _pin_one(space: NodeNamespaces, processors: set[int], furnish: Work | None) -> None:
    """Fork a child that makes the namespace, pin it from here, let the child go."""
    told, tells = os.pipe()
    go, goes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        os.close(goes)
        _live_in_it(space, processors, furnish, tells, go)
    os.close(tells)
    os.close(go)
    try:
        reason = os.read(told, 65536).decode("utf-8", "replace")
        if reason != "made":
            raise NotBuilt(f"node {space.name}: {reason or 'its mount namespace was not made'}")
        mount_namespaces.pin(child, space.mnt)
    finally:
        os.close(told)
        os.close(goes)
        os.waitpid(child, 0)


def _live_in_it(space: NodeNamespaces, processors: set[int], furnish: Work | None, tells: int, go: int) -> NoReturn:
    """Never returns, whatever happens: what follows is the parent's to do, and not from inside the node."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.sched_setaffinity(0, processors)
        os.write(tells, _made(space, furnish).encode())
        os.read(go, 1)
    finally:
        os._exit(0)


def _made(space: NodeNamespaces, furnish: Work | None) -> str:
    """`made`, or what went wrong."""
    try:
        mount_namespaces.enter(net=space.net)
        mount_namespaces.unshare_mounts()
        _furnish(space, furnish)
    except Exception as error:  # noqa: BLE001 - told to the parent, which tells the user
        return f"{type(error).__name__}: {error}"
    return "made"


def _furnish(space: NodeNamespaces, more: Work | None) -> None:
    """1. The host's mounts go on to come in, ours do not go out.  2. Other namespaces' pins are let go of: a copy would
    keep them alive.  3. The node's own `/sys`, which shows its own links.  4. The node's own paths.  5. Whatever
    more it has.  6. What a container mounts for others is seen by them."""
    mounts = KernelMounts()
    mounts.set_propagation("/", "rslave")
    for mount in reversed(mounted()):
        if mount.kind == "nsfs" or Path(mount.target) == space.layout.pins:
            with contextlib.suppress(LinuxError):
                mounts.unmount(mount.target, lazily=True)
    _own_sys(mounts)
    shown = node_mounts.sources(space.layout, space.name)
    node_mounts.compose(node_mounts.covers(shown, lambda base: Path("/", base).is_dir()))
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
