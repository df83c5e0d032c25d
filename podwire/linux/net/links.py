"""Network interfaces by rtnetlink."""

import errno
import os
from struct import Struct

from podwire.linux import errors
from podwire.linux.errors import LinkExists, NoSuchLink
from podwire.linux.net import wire
from podwire.linux.net.netlink import Netlink, Sender
from podwire.linux.net.wire import CREATE, EXCL, Request, attribute, nested, text, u8, u16, u32
from podwire.linux.proc.namespaces import open_namespace
from podwire.linux.values import Bridge, Dummy, Ifb, Ipvlan, Link, Macvlan, NewLink, Path, Veth, Vlan, Vrf, Vxlan

_NEW, _DELETE, _GET, _SET = 16, 17, 18, 19
_MESSAGE = Struct("=BxHiII")  # family, type, index, flags, which flags change
_BRIDGE_FAMILY = 7
_UP, _PROMISCUOUS, _ALL_MULTICAST = 0x1, 0x100, 0x200
_NEW_INDEX_IN_PEER = 1  # VETH_INFO_PEER
_MODES = {"private": 1, "vepa": 2, "bridge": 4, "passthru": 8}
_IPVLAN_MODES = {"l2": 0, "l3": 1, "l3s": 2}
_MODE_NAMES = {
    kind: {number: name for name, number in modes.items()}
    for kind, modes in (("macvlan", _MODES), ("ipvlan", _IPVLAN_MODES))
}
_OWN = 1
"""The first attribute of a kind: the mode of a macvlan or ipvlan, the tag of a vlan, the table of a vrf."""
FEATURES = {
    "dummy": "CONFIG_DUMMY",
    "ipvlan": "CONFIG_IPVLAN",
    "macvlan": "CONFIG_MACVLAN",
    "vlan": "CONFIG_VLAN_8021Q",
    "vrf": "CONFIG_NET_VRF",
    "vxlan": "CONFIG_VXLAN",
}
"""Kernel options by kind of link."""
_STATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
_SKIP_STATISTICS = 1 << 3

_ADDRESS, _NAME, _MTU, _LINK, _MASTER, _OPERSTATE, _LINKINFO, _ALIAS = 1, 3, 4, 5, 10, 16, 18, 20
_NETNS_FD, _EXT_MASK, _LINK_NETNSID, _PROTINFO, _QUEUE = 28, 29, 37, 12, 13
_XDP, _XDP_ATTACHED, _GROUP = 43, 2, 27
_INFO_KIND, _INFO_DATA, _INFO_SLAVE_DATA = 1, 2, 5
_MACVLAN_QUEUE = 7
_PORT_HAIRPIN, _PORT_ISOLATED = 4, 33
_VXLAN_LINK, _VXLAN_LOCAL, _VXLAN_LEARNING, _VXLAN_PORT, _VXLAN_LOCAL6 = 3, 4, 7, 15, 17

_ERRORS: errors.Names = {
    errno.EEXIST: LinkExists,
    errno.ENODEV: NoSuchLink,
    errno.ENXIO: NoSuchLink,
    errno.EBADF: errors.NoSuchNamespace,
}


def checked_name(name: str) -> str:
    """A name that the kernel takes as it is; a `%` would be filled in by the kernel, so it is refused here."""
    bad = not name or len(name.encode()) > 15 or name in (".", "..")
    if bad or any(character in "/:%\0" or character.isspace() for character in name):
        rule = "1 to 15 bytes without '/', ':', '%' and spaces"
        raise errors.Refused(errno.EINVAL, f"name a link {name!r}", rule)
    return name


def mac_bytes(mac: str) -> bytes:
    try:
        packed = bytes.fromhex(mac.replace(":", ""))
    except ValueError:
        packed = b""
    if len(packed) != 6:
        raise errors.Refused(errno.EINVAL, f"use the MAC address {mac!r}", "six pairs of hex digits are needed")
    return packed


class KernelLinks:
    """The links of one namespace. A link is named by its index, or by its name."""

    def __init__(self, netlink: Sender) -> None:
        self._netlink = netlink

    def list(self) -> list[Link]:
        body = _MESSAGE.pack(0, 0, 0, 0, 0) + u32(_EXT_MASK, _SKIP_STATISTICS)
        return [parsed(reply) for reply in self._netlink.dump(Request(_GET, 0, body, "list links", _ERRORS))]

    def get(self, link: int | str) -> Link:
        """NoSuchLink."""
        head, name = _which(link)
        body = head + name + u32(_EXT_MASK, _SKIP_STATISTICS)
        return parsed(self._netlink.ask(Request(_GET, 0, body, f"find link {link}", _ERRORS)))

    def add(self, new: NewLink) -> None:
        """Make a link. LinkExists, also when it is the peer's name that is taken; NoSuchLink for a missing parent."""
        requests = _new_requests(new)
        if new.alias:
            # The kernel takes no alias when it makes a link. Both requests are worked off in one system call that
            # no signal interrupts, so nobody finds the link without its owner tag.
            requests.append(_change(new.name, text(_ALIAS, new.alias), f"tag link {new.name}"))
        try:
            self._netlink.do(*requests)
        except errors.Unsupported as error:
            kind = type(new).__name__.lower()
            reason = f"this kernel is built without {FEATURES.get(kind, kind)}"
            raise errors.Unsupported(error.errno, f"add {kind} {new.name}", reason) from error

    def change(
        self,
        link: int | str,
        *,
        up: bool | None = None,
        name: str | None = None,
        mtu: int | None = None,
        mac: str | None = None,
        alias: str | None = None,
        master: int | None = None,
        promiscuous: bool | None = None,
        all_multicast: bool | None = None,
        queue: int | None = None,
        group: int | None = None,
    ) -> None:
        """Change what is given and leave the rest; master 0 leaves the bridge."""
        parts = [
            b"" if name is None else text(_NAME, checked_name(name)),
            b"" if mtu is None else u32(_MTU, mtu),
            b"" if mac is None else attribute(_ADDRESS, mac_bytes(mac)),
            b"" if alias is None else attribute(_ALIAS, alias.encode() or b"\0"),
            b"" if master is None else u32(_MASTER, master),
            b"" if queue is None else u32(_QUEUE, queue),
            b"" if group is None else u32(_GROUP, group),
        ]
        wanted = ((_UP, up), (_PROMISCUOUS, promiscuous), (_ALL_MULTICAST, all_multicast))
        flags = sum(flag for flag, value in wanted if value)
        mask = sum(flag for flag, value in wanted if value is not None)
        self._netlink.do(_change(link, b"".join(parts), f"change link {link}", flags, mask, renamed=name is not None))

    def set_port(self, link: int, *, hairpin: bool | None = None, isolated: bool | None = None) -> None:
        """Flags of a bridge's port: hairpin sends back where it came from, isolated ports reach no isolated port."""
        flags = [
            b"" if hairpin is None else u8(_PORT_HAIRPIN, hairpin),
            b"" if isolated is None else u8(_PORT_ISOLATED, isolated),
        ]
        body = _MESSAGE.pack(_BRIDGE_FAMILY, 0, link, 0, 0) + nested(_PROTINFO, *flags)
        self._netlink.do(Request(_SET, 0, body, f"change bridge port {link}", _ERRORS))

    def move(self, link: int | str, netns: Path, name: str | None = None) -> None:
        """Put it into another namespace, there under another name if one is given. It arrives down. LinkExists."""
        operation = f"move link {link} to {os.fspath(netns)}"
        head, old = _which(link)
        if name is not None:
            checked_name(name)
            found = self.get(link)
            if found.name != name:
                _check_free(name, netns, operation)
            head, old = _MESSAGE.pack(0, 0, found.ifindex, 0, 0), b""
        there = open_namespace(netns)
        body = head + old + (text(_NAME, name) if name else b"") + u32(_NETNS_FD, there)
        self._netlink.do(Request(_SET, 0, body, operation, _ERRORS, (there,)))

    def delete(self, link: int | str) -> None:
        """A veth's peer goes with it, wherever it is. NoSuchLink."""
        head, name = _which(link)
        self._netlink.do(Request(_DELETE, 0, head + name, f"delete link {link}", _ERRORS))


def _check_free(name: str, netns: Path, operation: str) -> None:
    """The kernel moves first and names then: a name that is taken would leave the link there under its old one."""
    with Netlink(netns) as there:
        try:
            KernelLinks(there).get(name)
        except NoSuchLink:
            return
    raise LinkExists(errno.EEXIST, operation)


def _which(link: int | str) -> tuple[bytes, bytes]:
    if isinstance(link, int):
        return _MESSAGE.pack(0, 0, link, 0, 0), b""
    return _MESSAGE.pack(0, 0, 0, 0, 0), text(_NAME, checked_name(link))


def _change(
    link: int | str, parts: bytes, operation: str, flags: int = 0, mask: int = 0, *, renamed: bool = False
) -> Request:
    if isinstance(link, int):
        return Request(_SET, 0, _MESSAGE.pack(0, 0, link, flags, mask) + parts, operation, _ERRORS)
    if renamed:
        raise errors.Refused(errno.EINVAL, operation, "a link is renamed by its index")
    body = _MESSAGE.pack(0, 0, 0, flags, mask) + text(_NAME, checked_name(link)) + parts
    return Request(_SET, 0, body, operation, _ERRORS)


def _new(name: str, up: bool, parts: bytes, kind: str, data: bytes, held: tuple[int, ...] = ()) -> Request:
    flags = _UP if up else 0
    info = nested(_LINKINFO, attribute(_INFO_KIND, kind.encode()), data)
    body = _MESSAGE.pack(0, 0, 0, flags, flags) + text(_NAME, checked_name(name)) + parts + info
    return Request(_NEW, CREATE | EXCL, body, f"add {kind} {name}", _ERRORS, held)


def _common(mtu: int, mac: str) -> bytes:
    return (u32(_MTU, mtu) if mtu else b"") + (attribute(_ADDRESS, mac_bytes(mac)) if mac else b"")


def _opened(netns: Path | None) -> tuple[int, ...]:
    """The last thing before a request is made: nothing that can fail may come between this and its sending."""
    return () if netns is None else (open_namespace(netns),)


def _new_veth(new: Veth) -> list[Request]:
    checked_name(new.name)
    peer = _MESSAGE.pack(0, 0, new.peer_index, 0, 0)
    peer += text(_NAME, checked_name(new.peer)) + _common(new.mtu, new.peer_mac)
    parts = _common(new.mtu, new.mac) + (u32(_MASTER, new.master) if new.master else b"")
    parts += u32(_GROUP, new.group) if new.group else b""
    held = _opened(new.peer_netns)
    if held:
        peer += u32(_NETNS_FD, held[0])
    return [_new(new.name, new.up, parts, "veth", nested(_INFO_DATA, nested(_NEW_INDEX_IN_PEER, peer)), held)]


def _new_requests(new: NewLink) -> list[Request]:
    match new:
        case Veth():
            return _new_veth(new)
        case Bridge():
            return [_new(new.name, new.up, _common(new.mtu, new.mac), "bridge", b"")]
        case Macvlan():
            return [_new_macvlan(new)]
        case Ifb():
            return [_new(new.name, new.up, _common(new.mtu, ""), "ifb", b"")]
        case Ipvlan():
            mode = u16(_OWN, _mode("ipvlan", new.mode, _IPVLAN_MODES))
            return [_new_stacked(new.name, new.parent, new.mtu, "ipvlan", mode)]
        case Vlan():
            return [_new_stacked(new.name, new.parent, new.mtu, "vlan", u16(_OWN, new.vlan))]
        case Dummy():
            return [_new(new.name, False, _common(new.mtu, ""), "dummy", b"")]
        case Vrf():
            return [_new(new.name, new.up, b"", "vrf", nested(_INFO_DATA, u32(_OWN, new.table)))]
        case Vxlan():
            return [_new_vxlan(new)]


def _new_vxlan(new: Vxlan) -> Request:
    local = attribute(_VXLAN_LOCAL if new.local.version == 4 else _VXLAN_LOCAL6, new.local.packed)
    port = attribute(_VXLAN_PORT, wire.BE16.pack(new.port))
    parts = (u32(_OWN, new.vni), u32(_VXLAN_LINK, new.parent), local, u8(_VXLAN_LEARNING, False), port)
    return _new(new.name, new.up, _common(new.mtu, new.mac), "vxlan", nested(_INFO_DATA, *parts))


def _mode(kind: str, mode: str, modes: dict[str, int]) -> int:
    if mode not in modes:
        raise errors.Refused(errno.EINVAL, f"add {kind}", f"mode {mode!r} must be one of {', '.join(modes)}")
    return modes[mode]


def _new_stacked(name: str, parent: int, mtu: int, kind: str, data: bytes) -> Request:
    return _new(name, False, _common(mtu, "") + u32(_LINK, parent), kind, nested(_INFO_DATA, data))


def _new_macvlan(new: Macvlan) -> Request:
    mode = _mode("macvlan", new.mode, _MODES)
    if new.alias and new.netns is not None:
        raise errors.Refused(errno.EINVAL, f"add macvlan {new.name}", "it is marked first, and then moved")
    checked_name(new.name)
    parts = _common(new.mtu, new.mac) + u32(_LINK, new.parent)
    queue = u32(_MACVLAN_QUEUE, new.queue) if new.queue else b""
    data = nested(_INFO_DATA, u32(_OWN, mode), queue)
    held = _opened(new.netns)
    if held:
        parts += u32(_NETNS_FD, held[0])
    return _new(new.name, False, parts, "macvlan", data, held)


def parsed(body: bytes) -> Link:
    """A link as the kernel tells of it: when asked, or by itself."""
    _, _, index, flags, _ = _MESSAGE.unpack_from(body)
    attrs = wire.attributes(body, _MESSAGE.size)
    info = wire.attributes(attrs.get(_LINKINFO, b""))
    port = wire.attributes(info.get(_INFO_SLAVE_DATA, b""))
    kind = wire.string(info.get(_INFO_KIND, b""))
    own = wire.attributes(info.get(_INFO_DATA, b"")) if kind in ("macvlan", "ipvlan", "vlan", "vrf") else {}
    number = wire.number(own.get(_OWN)) if _OWN in own else -1
    state = wire.number(attrs.get(_OPERSTATE))
    return Link(
        ifindex=index,
        name=wire.string(attrs[_NAME]),
        kind=kind,
        mac=attrs.get(_ADDRESS, b"").hex(":"),
        mtu=wire.number(attrs.get(_MTU)),
        up=bool(flags & _UP),
        state=_STATES[state] if state < len(_STATES) else "unknown",
        master=wire.number(attrs.get(_MASTER)),
        peer=wire.number(attrs.get(_LINK)),
        peer_netns=wire.number(attrs[_LINK_NETNSID]) if _LINK_NETNSID in attrs else None,
        alias=wire.string(attrs.get(_ALIAS, b"")),
        promiscuous=bool(flags & _PROMISCUOUS),
        hairpin=bool(wire.number(port.get(_PORT_HAIRPIN))),
        isolated=bool(wire.number(port.get(_PORT_ISOLATED))),
        all_multicast=bool(flags & _ALL_MULTICAST),
        queue=wire.number(attrs.get(_QUEUE)),
        xdp=bool(wire.number(wire.attributes(attrs.get(_XDP, b"")).get(_XDP_ATTACHED))),
        mode=_MODE_NAMES.get(kind, {}).get(number, ""),
        group=wire.number(attrs.get(_GROUP)),
        vlan=max(number, 0) if kind == "vlan" else 0,
        table=max(number, 0) if kind == "vrf" else 0,
    )
