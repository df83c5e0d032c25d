"""Netlink events of a network namespace: links, addresses, routes, rules, traffic control and sysctls by rtnetlink, the
nft ruleset by nfnetlink.

Nothing here blocks: `read` returns the events so far, and an event loop watches `fileno()`. A monitor belongs to the
namespace that it was opened in, and keeps that alive until it is closed.
"""

import errno
from _socket import AF_NETLINK, SO_RCVBUF, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_RAW, SOL_SOCKET, socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.links import parsed
from podwire.linux.net.netlink import NETFILTER, ROUTE
from podwire.linux.net.wire import HEADER
from podwire.linux.nft import keys
from podwire.linux.proc.namespaces import visit
from podwire.linux.values import Link, Path

LINK, PORT, ADDRESS, NEXT_HOP, RULE, TRAFFIC, PARAMETER = (
    "link", "port", "address", "route", "rule", "traffic", "parameter"
)  # fmt: skip
ELEMENT, RULESET = "element", "ruleset"
ANYTHING = "anything"

_BUFFER_FORCED = 33  # SO_RCVBUFFORCE: beyond what the machine gives to anybody
_ROOM = 1 << 20
_CHUNK = 1 << 17

_LINKS, _TRAFFIC, _ADDRESSES4, _ROUTES4, _RULES4, _ADDRESSES6, _ROUTES6, _RULES6, _PARAMETERS4, _PARAMETERS6 = (
    1 << group - 1 for group in (1, 4, 5, 7, 8, 9, 11, 19, 24, 25)
)
_NFTABLES = 1 << 7 - 1
_GROUPS = {
    ROUTE: _LINKS | _TRAFFIC | _ADDRESSES4 | _ROUTES4 | _RULES4 | _ADDRESSES6 | _ROUTES6 | _RULES6
    | _PARAMETERS4 | _PARAMETERS6,
    NETFILTER: _NFTABLES,
}  # fmt: skip

_INDEXED = Struct("=BxxxI")  # of addresses and traffic control: family, …, index
_ROUTE_HEAD = Struct("=BBBBBBBBI")
_OUT = 4
_BRIDGE_FAMILY, _INET6 = 7, 10
_LINK_SCOPE = 253
_LOCAL_TABLE = 255
_PARAMETER_OF = 1
_OF_ALL = 0xFFFFFFFF  # -1
_NFT = 10 << 8
_NFT_HEAD = 4
_NEW_ELEMENT, _GONE_ELEMENT, _NEW_GENERATION = 12, 14, 15
_NFT_GONE = frozenset({2, 5, 8, 11, 14, 20, 24})  # table, chain, rule, set, element, object, flow table
_ELEMENTS, _USERDATA = 3, 6


class Changed(NamedTuple):
    """One object that appeared, changed or disappeared."""

    what: str
    gone: bool = False
    ifindex: int = 0
    """The link that it is, or is at; 0 when it is at none."""
    link: Link | None = None
    comments: tuple[str, ...] = ()
    """Of nft elements; an empty one for each that has none."""


class Monitor:
    """A socket for all events of one namespace: of links and routes, or of the nft ruleset."""

    def __init__(self, netns: Path | int | None = None, *, protocol: int = ROUTE) -> None:
        """In the namespace at a path or behind a descriptor; None is the calling thread's own."""
        self._parse = _route if protocol == ROUTE else _nft
        try:
            if netns is None:
                self._socket = _opened(protocol)
            else:
                with visit(netns):
                    self._socket = _opened(protocol)
        except errors.LinuxError:
            raise
        except OSError as error:
            names: errors.Names = dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.ENOBUFS), errors.OutOfResources)
            raise errors.from_oserror(error, "watch a network namespace", names) from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def read(self) -> list[Changed]:
        """Returns the events since the last call; ANYTHING if some were lost."""
        found: list[Changed] = []
        while True:
            try:
                data = self._socket.recv(_CHUNK)
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise errors.from_oserror(error, "receive netlink events") from error
                found.append(Changed(ANYTHING))
            else:
                found += messages(data, self._parse)


def _opened(protocol: int) -> socket:
    with ExitStack() as undo:
        opened = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol)
        undo.callback(opened.close)
        for option in (SO_RCVBUF, _BUFFER_FORCED):
            with suppress(OSError):  # a smaller buffer loses events sooner
                opened.setsockopt(SOL_SOCKET, option, _ROOM)
        opened.bind((0, _GROUPS[protocol]))
        undo.pop_all()
    return opened


def messages(data: bytes, parse: Callable[[int, bytes], Changed | None]) -> Iterator[Changed]:
    at = 0
    while at + HEADER.size <= len(data):
        length, kind, *_ = HEADER.unpack_from(data, at)
        if length < HEADER.size:
            return
        change = parse(kind, data[at + HEADER.size : at + length])
        if change is not None:
            yield change
        at += (length + 3) & ~3


def _route(kind: int, body: bytes) -> Changed | None:
    """Each object type has four message types; the first announces a new one, the second a deleted one."""
    base, verb = kind & ~3, kind & 3
    if verb > 1 or base not in _READERS:
        return None
    return _READERS[base](body, bool(verb))


def _link(body: bytes, gone: bool) -> Changed:
    link = parsed(body)
    what = PORT if body[0] == _BRIDGE_FAMILY else LINK  # one of the other family is about a place in a bridge
    return Changed(what, gone, link.ifindex, link)


def _address(body: bytes, gone: bool) -> Changed | None:
    """Ignores link-local addresses, which come and go with their links."""
    if body[0] == _INET6 and body[3] == _LINK_SCOPE:
        return None
    return Changed(ADDRESS, gone, _INDEXED.unpack_from(body)[1])


def _next_hop(body: bytes, gone: bool) -> Changed | None:
    """Ignores the local table, which follows from addresses."""
    if _ROUTE_HEAD.unpack_from(body)[4] == _LOCAL_TABLE:
        return None
    attrs = wire.attributes(body, _ROUTE_HEAD.size)
    return Changed(NEXT_HOP, gone, wire.number(attrs.get(_OUT)))


def _traffic(body: bytes, gone: bool) -> Changed:
    return Changed(TRAFFIC, gone, _INDEXED.unpack_from(body)[1])


def _parameter(body: bytes, _gone: bool) -> Changed | None:
    """Reports changes for all links only: each new link has events of its own sysctls."""
    of = wire.number(wire.attributes(body, 4).get(_PARAMETER_OF))
    return Changed(PARAMETER) if of == _OF_ALL else None


_READERS: dict[int, Callable[[bytes, bool], Changed | None]] = {
    16: _link,
    20: _address,
    24: _next_hop,
    32: lambda _body, gone: Changed(RULE, gone),
    36: _traffic,
    40: _traffic,
    44: _traffic,
    80: _parameter,
}


def _nft(kind: int, body: bytes) -> Changed | None:
    number = kind & 0xFF
    if kind & 0xFF00 != _NFT or number == _NEW_GENERATION:  # that follows every transaction
        return None
    gone = number in _NFT_GONE
    if number not in (_NEW_ELEMENT, _GONE_ELEMENT):
        return Changed(RULESET, gone)
    elements = wire.iter_attributes(wire.attributes(body, _NFT_HEAD).get(_ELEMENTS, b""))
    comments = (keys.commented(wire.attributes(element).get(_USERDATA, b"")) for _, element in elements)
    return Changed(ELEMENT, gone, comments=tuple(comments))
