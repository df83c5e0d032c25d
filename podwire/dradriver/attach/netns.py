"""A network namespace that is worked in: its sockets, opened once, and its descriptor, for links that come to it."""

import os
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from podwire.linux.net.ethtool import Ethtool
from podwire.linux.net.netlink import Netlink
from podwire.linux.proc.namespaces import open_namespace, visit
from podwire.linux.values import Path

T = TypeVar("T")
_OWN = "/proc/thread-self/ns/net"


class Place:
    def __init__(self, netns: Path = _OWN) -> None:
        """The namespace at a path, or the calling thread's own. NoSuchNamespace, WrongKind."""
        self.netns = open_namespace(netns)
        try:
            self.netlink = Netlink(self.netns)
        except BaseException:
            os.close(self.netns)
            raise
        self._ethtool: Ethtool | None = None

    @property
    def path(self) -> str:
        """One that leads there while this is open, whatever becomes of the one that it was opened by."""
        return f"/proc/self/fd/{self.netns}"

    @property
    def ethtool(self) -> Ethtool:
        if self._ethtool is None:
            self._ethtool = Ethtool(self.netns)
        return self._ethtool

    @property
    def identity(self) -> str:
        """What tells it from all other namespaces until the next boot."""
        found = os.fstat(self.netns)
        return f"{found.st_dev}:{found.st_ino}"

    def visited(self, work: Callable[[], T]) -> T:
        """Do it there, in the calling thread."""
        with visit(self.netns):
            return work()

    def close(self) -> None:
        if self._ethtool is not None:
            self._ethtool.close()
        self.netlink.close()
        os.close(self.netns)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
