"""Sockets to netfilter, which tell the kernel of nft elements and of connections.

After something was deleted, closing one takes the kernel 10 ms, in which nobody changes rules or removes links. So the
daemon keeps its own, and others are closed last.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from podwire.cniplugins.skeleton import Call
from podwire.linux.net.conntrack import KernelConntrack
from podwire.linux.nft.table import KernelElements


class Netfilter:
    """Of the namespace in which each is used first."""

    @cached_property
    def elements(self) -> KernelElements:
        return KernelElements()

    @cached_property
    def conntrack(self) -> KernelConntrack:
        return KernelConntrack()

    def close(self) -> None:
        for each in (self.__dict__.get("elements"), self.__dict__.get("conntrack")):
            if each is not None:
                each.close()


@contextmanager
def opened(call: Call) -> Iterator[Netfilter]:
    """Those that are kept, or own ones until the block ends."""
    if call.netfilter is not None:
        yield call.netfilter
        return
    own = Netfilter()
    try:
        yield own
    finally:
        call.later(own.close)
