"""An open network namespace: its descriptor, its netlink socket and its ethtool socket."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from podwire.linux.net.ethtool import Ethtool
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import open_namespace, visit
from podwire.linux.values import Path

T = TypeVar("T")
OWN = "/proc/thread-self/ns/net"
"""The namespace of the calling thread."""


class NamespaceHandle(KernelNetwork):
    """A `KernelNetwork` that links can be moved to, because it also holds the descriptor of its namespace."""

    def __init__(self, netns: Path = OWN) -> None:
        """Opens the namespace at a path. Raises NoSuchNamespace, WrongKind."""
        self.netns = open_namespace(netns)
        with ExitStack() as undo:
            undo.callback(os.close, self.netns)
            super().__init__(None if netns == OWN else self.netns)
            undo.pop_all()
        self._ethtool: Ethtool | None = None

    @property
    def path(self) -> str:
        """A path to the namespace that is valid in this process while the handle is open."""
        return f"/proc/self/fd/{self.netns}"

    @property
    def ethtool(self) -> Ethtool:
        if self._ethtool is None:
            self._ethtool = Ethtool(self.netns)
        return self._ethtool

    @property
    def identity(self) -> str:
        """Device and inode of the namespace: unique until the next boot."""
        status = os.fstat(self.netns)
        return f"{status.st_dev}:{status.st_ino}"

    def visited(self, work: Callable[[], T]) -> T:
        """Calls `work` with the calling thread in this namespace."""
        with visit(self.netns):
            return work()

    def close(self) -> None:
        if self._ethtool is not None:
            self._ethtool.close()
        super().close()
        os.close(self.netns)
