"""Options as bytes, and what stands in them (RFC 2132, 3396, 3397, 3442).

Whatever comes from the network is hostile until it was read: every reader here ends, and raises Malformed or answers.
"""

from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import NamedTuple, TypeVar

PAD, END = 0, 255
MASK, ROUTER, DNS, HOSTNAME, DOMAIN, MTU, STATIC_ROUTES = 1, 3, 6, 12, 15, 26, 33
REQUESTED, SECONDS, OVERLOAD, TYPE, SERVER, WISHES, TEXT, LONGEST = 50, 51, 52, 53, 54, 55, 56, 57
T1, T2, CLIENT_ID, SEARCH, CLASSLESS_ROUTES = 58, 59, 61, 119, 121

DEFAULT_WISHES = bytes(
    (
        MASK,
        CLASSLESS_ROUTES,  # before the router, says RFC 3442
        ROUTER,
        STATIC_ROUTES,
        DNS,
        DOMAIN,
        SEARCH,
        MTU,
        SECONDS,
        T1,
        T2,
    )
)

INFINITE = 0xFFFFFFFF
_LONGEST_VALUE = 255
_LONGEST_NAME = 253
_MOST_NAMES = 32

T = TypeVar("T")
D = TypeVar("D")
Options = Mapping[int, bytes]


class Malformed(ValueError):
    """Bytes that are not a valid message or option value."""


class Route(NamedTuple):
    destination: IPv4Network
    gateway: IPv4Address | None
    """None where the destination is on the link itself."""


def decode_into(found: dict[int, bytes], data: bytes) -> None:
    """An option that comes in parts is one value (RFC 3396)."""
    at = 0
    while at < len(data):
        code = data[at]
        if code == END:
            return
        at += 1
        if code == PAD:
            continue
        if at >= len(data) or at + 1 + data[at] > len(data):
            raise Malformed(f"option {code}: ends beyond the message")
        found[code] = found.get(code, b"") + data[at + 1 : at + 1 + data[at]]
        at += 1 + data[at]


def encode(options: Options) -> bytes:
    """Encodes options: the message type first, as servers expect; long values are split (RFC 3396)."""
    written = bytearray()
    for code in sorted(options, key=lambda number: (number != TYPE, number)):
        value = options[code]
        for at in range(0, max(len(value), 1), _LONGEST_VALUE):
            part = value[at : at + _LONGEST_VALUE]
            written += bytes((code, len(part))) + part
    return bytes(written) + bytes((END,))


class Reader:
    """Reads values; those that cannot be read are as good as absent, and remembered."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.unreadable: list[int] = []

    def __call__(self, code: int, read: Callable[[bytes], T], default: D) -> T | D:
        data = self._options.get(code)
        if data is None:
            return default
        try:
            return read(data)
        except Malformed:
            self.unreadable.append(code)
            return default


def ip(data: bytes) -> IPv4Address:
    if len(data) != 4:
        raise Malformed(f"{len(data)} bytes are not an address")
    return IPv4Address(data)


def ips(data: bytes) -> tuple[IPv4Address, ...]:
    if not data or len(data) % 4:
        raise Malformed(f"{len(data)} bytes are not addresses")
    return tuple(IPv4Address(data[at : at + 4]) for at in range(0, len(data), 4))


def u32(data: bytes) -> int:
    if len(data) != 4:
        raise Malformed(f"{len(data)} bytes are not a number of 32 bits")
    return int.from_bytes(data)


def u16(data: bytes) -> int:
    if len(data) != 2:
        raise Malformed(f"{len(data)} bytes are not a number of 16 bits")
    return int.from_bytes(data)


def text(data: bytes) -> str:
    """Some servers end it with a zero byte."""
    text = data.rstrip(b"\0")
    if not text.isascii() or not text.decode("ascii").isprintable() or b" " in text:
        raise Malformed("not a name")
    return text.decode("ascii")


def prefix(data: bytes) -> int:
    """The length of a mask."""
    mask = int(ip(data))
    length = mask.bit_count()
    if mask != (INFINITE << 32 - length) & INFINITE:
        raise Malformed(f"{IPv4Address(mask)} is not a mask")
    return length


def classless_routes(data: bytes) -> tuple[Route, ...]:
    """RFC 3442: the length of a prefix, as many bytes of it as that needs, and a router."""
    routes, at = [], 0
    while at < len(data):
        length = data[at]
        used = (length + 7) // 8
        rest = data[at + 1 : at + 1 + used + 4]
        if length > 32 or len(rest) < used + 4:
            raise Malformed("classless routes: cut off")
        network = IPv4Network((rest[:used].ljust(4, b"\0"), length), strict=False)
        routes.append(Route(network, _gateway(rest[used:])))
        at += 1 + used + 4
    if not routes:
        raise Malformed("classless routes: none")
    return tuple(routes)


def static_routes(data: bytes) -> tuple[Route, ...]:
    """Pairs of a destination and a router, from the time when networks had classes."""
    if not data or len(data) % 8:
        raise Malformed(f"{len(data)} bytes are not routes")
    pairs = [(IPv4Address(data[at : at + 4]), data[at + 4 : at + 8]) for at in range(0, len(data), 8)]
    return tuple(Route(_classful(pair), _gateway(gateway)) for pair, gateway in pairs if int(pair))


def class_prefix(address: IPv4Address) -> int:
    """Of a network in the times of classes; what is beyond them stands for itself."""
    first = int(address) >> 24
    return 8 if first < 128 else 16 if first < 192 else 24 if first < 224 else 32


def _classful(address: IPv4Address) -> IPv4Network:
    network = IPv4Network((address, class_prefix(address)), strict=False)
    return network if network.network_address == address else IPv4Network(address)


def _gateway(data: bytes) -> IPv4Address | None:
    return IPv4Address(data) if any(data) else None


def search(data: bytes) -> tuple[str, ...]:
    """Domains, compressed as in DNS (RFC 3397)."""
    names: list[str] = []
    at = 0
    while at < len(data):
        if len(names) == _MOST_NAMES:
            raise Malformed("search: too many names")
        name, at = _name(data, at)
        names.append(name)
    return tuple(names)


def _name(data: bytes, at: int) -> tuple[str, int]:
    """Pointers lead strictly backwards, so loops are impossible."""
    labels: list[str] = []
    end, lowest = None, at
    while True:
        if at >= len(data):
            raise Malformed("search: cut off")
        length = data[at]
        if length >= 0xC0:
            to = int.from_bytes(data[at : at + 2]) & 0x3FFF
            if at + 2 > len(data) or to >= lowest:
                raise Malformed("search: a pointer leads nowhere")
            end = at + 2 if end is None else end
            at = lowest = to
        elif length > 63 or at + 1 + length > len(data):
            raise Malformed("search: cut off")
        elif length:
            labels.append(text(data[at + 1 : at + 1 + length]))
            at += 1 + length
        else:
            break
        if sum(map(len, labels)) + len(labels) > _LONGEST_NAME:
            raise Malformed("search: a name is too long")
    return ".".join(labels), at + 1 if end is None else end
