"""Netlink sockets for nft elements and for conntrack.

Closing such a socket after a deletion takes the kernel 10 ms, during which it changes neither rules nor links. The
daemon therefore keeps its sockets open, and a plugin's process closes its own last.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Protocol

from podwire.linux.net.conntrack import KernelConntrack
from podwire.linux.nft.table import KernelElements


class Netfilter:
    """Each socket belongs to the namespace in which it is first used."""

    @cached_property
    def elements(self) -> KernelElements:
        return KernelElements()

    @cached_property
    def conntrack(self) -> KernelConntrack:
        return KernelConntrack()

    def close(self) -> None:
        for socket in (self.__dict__.get("elements"), self.__dict__.get("conntrack")):
            if socket is not None:
                socket.close()


class NetfilterCall(Protocol):
    """The part of a CNI call (skeleton.Call) that lends the daemon's sockets and defers work."""

    @property
    def netfilter(self) -> Netfilter | None: ...

    @property
    def defer(self) -> Callable[[Callable[[], None]], None]: ...


@contextmanager
def open_netfilter(call: NetfilterCall) -> Iterator[Netfilter]:
    """Yields the daemon's sockets, or own ones that are closed after the block."""
    if call.netfilter is not None:
        yield call.netfilter
        return
    own = Netfilter()
    try:
        yield own
    finally:
        call.defer(own.close)
