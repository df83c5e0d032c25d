"""One DHCP message: bytes to a value and back (RFC 2131, section 2)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv4Address
from struct import Struct

from podwire.protocols.dhcp import options
from podwire.protocols.dhcp.options import Malformed

REQUEST, REPLY = 1, 2
SERVER_PORT, CLIENT_PORT = 67, 68
NOWHERE = IPv4Address(0)
EVERYBODY = IPv4Address(0xFFFFFFFF)

_ETHERNET, _MAC = 1, 6
_BROADCAST = 0x8000
_COOKIE = bytes((99, 130, 83, 99))
_HEAD = Struct("!BBBBIHH4s4s4s4s16s64s128s")
_SHORTEST = 300
"""BOOTP's fixed size: some relays drop what is shorter."""
_IN_FILE, _IN_NAME = 1, 2


class Type(IntEnum):
    DISCOVER = 1
    OFFER = 2
    REQUEST = 3
    DECLINE = 4
    ACK = 5
    NAK = 6
    RELEASE = 7
    INFORM = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    op: int
    xid: int
    mac: bytes
    secs: int = 0
    broadcast: bool = False
    """Whether the server is to answer to everybody: the client cannot hear what is sent to its address yet."""
    ciaddr: IPv4Address = NOWHERE
    """The client's address, when it has one that works."""
    yiaddr: IPv4Address = NOWHERE
    """The address that it is given."""
    siaddr: IPv4Address = NOWHERE
    giaddr: IPv4Address = NOWHERE
    options: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def type(self) -> Type | None:
        """None for BOOTP and for unknown types."""
        value = self.options.get(options.TYPE, b"")
        return Type(value[0]) if len(value) == 1 and value[0] in set(Type) else None


def encode(message: Message) -> bytes:
    head = _HEAD.pack(
        message.op,
        _ETHERNET,
        _MAC,
        0,
        message.xid,
        min(message.secs, 0xFFFF),
        _BROADCAST if message.broadcast else 0,
        message.ciaddr.packed,
        message.yiaddr.packed,
        message.siaddr.packed,
        message.giaddr.packed,
        message.mac,
        b"",
        b"",
    )
    return (head + _COOKIE + options.encode(message.options)).ljust(_SHORTEST, b"\0")


def decode(data: bytes) -> Message:
    """Raises Malformed for anything but a DHCP message for Ethernet."""
    if len(data) < _HEAD.size + len(_COOKIE):
        raise Malformed(f"{len(data)} bytes are not a message")
    op, htype, hlen, _, xid, secs, flags, ci, yi, si, gi, mac, name, file = _HEAD.unpack_from(data)
    if op not in (REQUEST, REPLY) or (htype, hlen) != (_ETHERNET, _MAC):
        raise Malformed(f"op {op}, hardware {htype} with addresses of {hlen} bytes")
    if data[_HEAD.size : _HEAD.size + len(_COOKIE)] != _COOKIE:
        raise Malformed("no magic cookie")
    return Message(
        op=op,
        xid=xid,
        secs=secs,
        broadcast=bool(flags & _BROADCAST),
        ciaddr=IPv4Address(ci),
        yiaddr=IPv4Address(yi),
        siaddr=IPv4Address(si),
        giaddr=IPv4Address(gi),
        mac=mac[:_MAC],
        options=_options(data[_HEAD.size + len(_COOKIE) :], name, file),
    )


def _options(data: bytes, name: bytes, file: bytes) -> dict[int, bytes]:
    """They may go on where BOOTP has a file's and a server's name, in that order (RFC 3396, section 5)."""
    found: dict[int, bytes] = {}
    options.decode_into(found, data)
    where = found.pop(options.OVERLOAD, b"\0")[:1]
    for place, more in ((_IN_FILE, file), (_IN_NAME, name)):
        if where and where[0] & place:
            options.decode_into(found, more)
    return found
