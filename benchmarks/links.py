"""Measures how long the kernel needs to move a link to another network namespace: the lower bound of attaching one."""

import os
import time

from podwire.linux import syscalls
from podwire.linux.net.link_attributes import Attributes, DetailedLinks
from podwire.linux.net.links import KernelLinks
from podwire.linux.net.netlink import Netlink
from podwire.linux.proc.namespaces import in_thread
from podwire.linux.values import Veth

LINK, PEER = "moved", "stays"


def moves(count: int) -> list[float]:
    """Seconds for each of so many moves of one end of a veth that is up, between namespaces made for it."""
    return [in_thread(_move) for _ in range(count)]


def _move() -> float:
    target = in_thread(_namespace)
    try:
        os.close(_namespace())
        netlink = Netlink(None)
        try:
            return _taken(netlink, target)
        finally:
            netlink.close()
    finally:
        os.close(target)


def _namespace() -> int:
    """A new one: the calling thread's from now on."""
    syscalls.unshare(syscalls.NEWNET)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _taken(netlink: Netlink, target: int) -> float:
    links = KernelLinks(netlink)
    links.add(Veth(LINK, PEER))
    for link in (LINK, PEER):
        links.change(link, up=True)
    index = links.get(LINK).ifindex
    begun = time.perf_counter()
    DetailedLinks(netlink).change(index, Attributes(), target)
    return time.perf_counter() - begun
