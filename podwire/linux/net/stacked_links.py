"""Links made on a link below, or that bind others together, with all that they are to be, in one message.

They can be made in another namespace than their parent's at once: it costs a fraction of moving them there, for which
the kernel waits until no processor can hold them any more.
"""

import errno
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net.link_attributes import ERRORS, Attributes, encode_attributes
from podwire.linux.net.links import FEATURES
from podwire.linux.net.netlink import Sender
from podwire.linux.net.wire import BE16, CREATE, EXCL, Request, attribute, nested, text, u16, u32

_NEW = 16
_MESSAGE = Struct("=BxHiII")
_LINK, _LINKINFO, _NETNS_FD, _NAME = 5, 18, 28, 3
_INFO_KIND, _INFO_DATA = 1, 2
_QUEUES, _TOO_MANY = 31, 5000
_MACVLAN_MODES = {"private": 1, "vepa": 2, "bridge": 4, "passthru": 8}
_IPVLAN_MODES = {"l2": 0, "l3": 1, "l3s": 2}
_VXLAN_ID, _VXLAN_GROUP, _VXLAN_LINK, _VXLAN_PORT, _VXLAN_GROUP6 = 1, 2, 3, 15, 16
_DEFAULT_PORT = 4789


class Stacked(NamedTuple):
    """Fields that its kind does not have are ignored."""

    kind: str
    parent: int = 0
    mode: str = ""
    """Of a macvlan: bridge (the default), private, vepa, passthru. Of an ipvlan: l2 (the default), l3, l3s."""
    vni: int = 0
    remote: str = ""
    port: int = 0
    vlan: int = 0
    table: int = 0
    """Of a vrf."""


def make(netlink: Sender, new: Stacked, attributes: Attributes, netns: int | None = None) -> None:
    """In an open namespace, or where the parent is. LinkExists, NoSuchLink; Unsupported by a kernel without the kind.

    An alias is not given: the kernel takes none before a link is there.
    """
    body, flags, mask = encode_attributes(attributes._replace(alias=None))
    below = u32(_LINK, new.parent) if new.parent else b""
    there = b"" if netns is None else u32(_NETNS_FD, netns)
    info = nested(_LINKINFO, attribute(_INFO_KIND, new.kind.encode()), nested(_INFO_DATA, *_DATA[new.kind](new)))
    head = _MESSAGE.pack(0, 0, 0, flags, mask)
    operation = f"add {new.kind} {attributes.name}"
    try:
        netlink.do(Request(_NEW, CREATE | EXCL, head + body + below + there + info, operation, ERRORS))
    except errors.Unsupported as error:
        reason = error.detail or f"this kernel is built without {FEATURES[new.kind]}"
        raise errors.Unsupported(error.errno, operation, reason) from error


def supports(netlink: Sender, kind: str) -> bool:
    """Whether the kernel has a kind of FEATURES. It is asked for one with too many queues: none is made."""
    info = nested(_LINKINFO, attribute(_INFO_KIND, kind.encode()))
    body = _MESSAGE.pack(0, 0, 0, 0, 0) + text(_NAME, "podwire-probe") + u32(_QUEUES, _TOO_MANY) + info
    try:
        netlink.do(Request(_NEW, CREATE | EXCL, body, f"ask for {kind}", ERRORS))
    except errors.Unsupported:
        return False
    except errors.LinuxError:
        return True
    return True


def _vxlan(new: Stacked) -> list[bytes]:
    parts = [u32(_VXLAN_ID, new.vni), u32(_VXLAN_LINK, new.parent)]
    parts.append(attribute(_VXLAN_PORT, BE16.pack(new.port or _DEFAULT_PORT)))
    if new.remote:
        remote = ip_address(new.remote)
        parts.append(attribute(_VXLAN_GROUP if remote.version == 4 else _VXLAN_GROUP6, remote.packed))
    return parts


def _mode(new: Stacked, modes: Mapping[str, int], default: str) -> int:
    try:
        return modes[new.mode or default]
    except KeyError:
        reason = f"mode {new.mode!r} must be one of {', '.join(modes)}"
        raise errors.Refused(errno.EINVAL, f"add {new.kind}", reason) from None


_DATA: Mapping[str, Callable[[Stacked], list[bytes]]] = {
    "dummy": lambda _new: [],
    "ipvlan": lambda new: [u16(1, _mode(new, _IPVLAN_MODES, "l2"))],
    "macvlan": lambda new: [u32(1, _mode(new, _MACVLAN_MODES, "bridge"))],
    "vlan": lambda new: [u16(1, new.vlan)],
    "vrf": lambda new: [u32(1, new.table)],
    "vxlan": _vxlan,
}
