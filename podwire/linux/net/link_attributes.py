"""Attributes of a link that one netlink message reads or sets, also while the message moves the link.

The kernel moves the link first and sets the attributes afterwards. If it rejects a value, the link stays in the other
namespace with its previous attributes.
"""

import errno
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.links import checked_name, mac_bytes, parsed
from podwire.linux.net.netlink import Sender
from podwire.linux.net.wire import CREATE, EXCL, Request, attribute, nested, text, u32
from podwire.linux.values import Link

_SET, _GET, _NEW_PROPERTY = 19, 18, 108
_MESSAGE = Struct("=BxHiII")  # family, type, index, flags, which flags change
_ADDRESS, _NAME, _MTU, _MASTER, _QUEUE, _ALIAS, _NETNS_FD, _EXT_MASK = 1, 3, 4, 10, 13, 20, 28, 29
_GSO_SEGMENTS, _GSO, _PERMANENT, _GRO, _TSO, _GSO_IPV4, _GRO_IPV4 = 40, 41, 54, 58, 59, 63, 64
_PROPERTIES, _ALT_NAME = 52, 53
_UP, _PROMISCUOUS, _ALL_MULTICAST = 0x1, 0x100, 0x200
_SKIP_STATISTICS = 1 << 3

ERRORS: errors.Names = {
    errno.EEXIST: errors.LinkExists,
    errno.ENODEV: errors.NoSuchLink,
    errno.ENXIO: errors.NoSuchLink,
    errno.EBADF: errors.NoSuchNamespace,
}


class Attributes(NamedTuple):
    """Attributes to set; None leaves one unchanged."""

    name: str | None = None
    mac: str | None = None
    mtu: int | None = None
    queue: int | None = None
    alias: str | None = None
    """Empty removes it."""
    master: int | None = None
    up: bool | None = None
    promiscuous: bool | None = None
    all_multicast: bool | None = None
    gso_max_size: int | None = None
    gso_max_segments: int | None = None
    gro_max_size: int | None = None
    gso_ipv4_max_size: int | None = None
    gro_ipv4_max_size: int | None = None


class LinkDetails(NamedTuple):
    """A link with the attributes that `Link` does not have; None where the kernel reports none."""

    link: Link
    permanent_mac: str = ""
    """The MAC address of the hardware; empty for a virtual link."""
    gso_max_size: int | None = None
    gso_max_segments: int | None = None
    gro_max_size: int | None = None
    gso_ipv4_max_size: int | None = None
    gro_ipv4_max_size: int | None = None
    tso_max_size: int | None = None
    """The upper limit of gso_max_size."""
    alt_names: tuple[str, ...] = ()


class DetailedLinks:
    """The links of one namespace, with all attributes."""

    def __init__(self, netlink: Sender) -> None:
        self._netlink = netlink

    def get(self, link: int | str) -> LinkDetails:
        """Raises NoSuchLink."""
        index, name = (link, b"") if isinstance(link, int) else (0, text(_NAME, checked_name(link)))
        body = _MESSAGE.pack(0, 0, index, 0, 0) + name + u32(_EXT_MASK, _SKIP_STATISTICS)
        return _parse_details(self._netlink.ask(Request(_GET, 0, body, f"find link {link}", ERRORS)))

    def list(self) -> list[LinkDetails]:
        body = _MESSAGE.pack(0, 0, 0, 0, 0) + u32(_EXT_MASK, _SKIP_STATISTICS)
        return [_parse_details(reply) for reply in self._netlink.dump(Request(_GET, 0, body, "list links", ERRORS))]

    def change(self, index: int, attributes: Attributes, netns: int | None = None) -> None:
        """Sets attributes. With `netns`, an open namespace, the link moves there first and arrives down.

        Raises LinkExists when the new name is taken there.
        """
        body, flags, mask = encode_attributes(attributes)
        there = b"" if netns is None else u32(_NETNS_FD, netns)
        head = _MESSAGE.pack(0, 0, index, flags, mask)
        verb = "change" if netns is None else "move"
        self._netlink.do(Request(_SET, 0, head + there + body, f"{verb} link {index}", ERRORS))

    def add_alt_name(self, index: int, name: str) -> None:
        """Adds an alternative name (`ip link property add altname`). Raises LinkExists, NoSuchLink."""
        body = _MESSAGE.pack(0, 0, index, 0, 0) + nested(_PROPERTIES, text(_ALT_NAME, name))
        self._netlink.do(Request(_NEW_PROPERTY, CREATE | EXCL, body, f"add alternative name {name}", ERRORS))


def encode_attributes(attributes: Attributes) -> tuple[bytes, int, int]:
    """Returns the encoded attributes, the interface flags, and the mask of flags to change."""
    numbers = (
        (_MTU, attributes.mtu),
        (_MASTER, attributes.master),
        (_QUEUE, attributes.queue),
        (_GSO, attributes.gso_max_size),
        (_GSO_SEGMENTS, attributes.gso_max_segments),
        (_GRO, attributes.gro_max_size),
        (_GSO_IPV4, attributes.gso_ipv4_max_size),
        (_GRO_IPV4, attributes.gro_ipv4_max_size),
    )
    parts = [u32(kind, value) for kind, value in numbers if value is not None]
    if attributes.name is not None:
        parts.append(text(_NAME, checked_name(attributes.name)))
    if attributes.mac is not None:
        parts.append(attribute(_ADDRESS, mac_bytes(attributes.mac)))
    if attributes.alias is not None:
        parts.append(attribute(_ALIAS, attributes.alias.encode() or b"\0"))
    wanted = (
        (_UP, attributes.up),
        (_PROMISCUOUS, attributes.promiscuous),
        (_ALL_MULTICAST, attributes.all_multicast),
    )
    flags = sum(flag for flag, value in wanted if value)
    return b"".join(parts), flags, sum(flag for flag, value in wanted if value is not None)


def _parse_details(body: bytes) -> LinkDetails:
    attrs = wire.attributes(body, _MESSAGE.size)

    def size(kind: int) -> int | None:
        return wire.number(attrs[kind]) if kind in attrs else None

    return LinkDetails(
        link=parsed(body),
        permanent_mac=attrs.get(_PERMANENT, b"").hex(":"),
        gso_max_size=size(_GSO),
        gso_max_segments=size(_GSO_SEGMENTS),
        gro_max_size=size(_GRO),
        gso_ipv4_max_size=size(_GSO_IPV4),
        gro_ipv4_max_size=size(_GRO_IPV4),
        tso_max_size=size(_TSO),
        alt_names=tuple(
            wire.string(name) for kind, name in wire.iter_attributes(attrs.get(_PROPERTIES, b"")) if kind == _ALT_NAME
        ),
    )
