"""Ports on which processes of a network namespace receive: TCP and SCTP listeners, bound UDP sockets (sock_diag)."""

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.wire import Request
from podwire.linux.values import IP, Path

_SOCK_DIAG, _BY_FAMILY = 4, 20
_REQUEST = Struct("=BBBBI48x")  # family, protocol, extensions, padding, states, socket
_ANSWER = Struct("=BBBB")  # family, state, timer, retransmissions
_PORTS = Struct(">HH")
_FAMILIES = {2: 4, 10: 16}
_LISTEN, _UNCONNECTED = 1 << 10, 1 << 7
_PROTOCOLS = {"TCP": (6, _LISTEN), "UDP": (17, _UNCONNECTED), "SCTP": (132, _LISTEN)}


class Listener(NamedTuple):
    protocol: str
    port: int
    address: IP
    """All zeros for every address."""


def listeners(netns: Path | int | None = None) -> frozenset[Listener]:
    """All listeners of a namespace, or of the calling thread's own. A protocol that the kernel lacks has none."""
    with Netlink(netns, protocol=_SOCK_DIAG) as netlink:
        return frozenset(
            listener for protocol in _PROTOCOLS for family in _FAMILIES for listener in _of(netlink, protocol, family)
        )


def _of(netlink: Netlink, protocol: str, family: int) -> Iterator[Listener]:
    number, states = _PROTOCOLS[protocol]
    body = _REQUEST.pack(family, number, 0, 0, states)
    with suppress(errors.Missing, errors.Unsupported, errors.Refused):
        for answer in netlink.dump(Request(_BY_FAMILY, 0, body, f"list {protocol} listeners", {})):
            port, _ = _PORTS.unpack_from(answer, _ANSWER.size)
            start = _ANSWER.size + _PORTS.size
            address = ip_address(answer[start : start + _FAMILIES[family]])
            yield Listener(protocol, port, address)
