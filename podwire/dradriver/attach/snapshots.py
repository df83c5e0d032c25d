"""A link as it is on the host, in full, and made so again when its pod gives it back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from podwire.dradriver.attach.netns import Place
from podwire.linux import errors
from podwire.linux.net import link_sysctls
from podwire.linux.net.link_attributes import Attributes, DetailedLinks, LinkDetails
from podwire.linux.net.snapshot_addresses import SavedAddress, SavedAddresses
from podwire.linux.net.snapshot_neighbours import SavedNeighbour, SavedNeighbours
from podwire.linux.net.snapshot_qdiscs import SavedQdisc, SavedQdiscs
from podwire.linux.net.snapshot_routes import SavedRoute, SavedRoutes
from podwire.linux.net.snapshot_rules import SavedRule, SavedRules
from podwire.linux.values import LOCAL, MAIN

_DEFAULT = 253
_EVERYBODYS = frozenset((0, _DEFAULT, MAIN, LOCAL))
"""Tables that no rule is needed for: all look there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    name: str
    kind: str
    mac: str
    permanent_mac: str
    peer: int
    """What it is connected to or made on, by index; 0 for nothing. It stays when the link moves."""
    attributes: Attributes
    """All that one message sets, without name and master."""
    addresses: tuple[SavedAddress, ...] = ()
    routes: tuple[SavedRoute, ...] = ()
    rules: tuple[SavedRule, ...] = ()
    """Those that name it, or look into tables that its routes are in. They stay on the host."""
    neighbours: tuple[SavedNeighbour, ...] = ()
    features: tuple[str, ...] = ()
    """Those that are asked for, of all that can be changed."""
    changeable: tuple[str, ...] = ()
    flags: Mapping[str, bool] = field(default_factory=dict)
    """The driver's private ones."""
    sysctls: Mapping[str, str] = field(default_factory=dict)
    queues: tuple[SavedQdisc, ...] = ()


def taken(host: Place, index: int) -> Snapshot:
    """NoSuchLink."""
    whole = DetailedLinks(host.netlink).get(index)
    features = host.ethtool.features(index)
    routes = SavedRoutes(host.netlink).list(index)
    return Snapshot(
        name=whole.link.name,
        kind=whole.link.kind,
        mac=whole.link.mac,
        permanent_mac=whole.permanent_mac,
        peer=whole.link.peer,
        attributes=attributes_of(whole),
        addresses=SavedAddresses(host.netlink).list().get(index, ()),
        routes=routes,
        rules=rules_of(whole.link.name, routes, SavedRules(host.netlink).list()),
        neighbours=SavedNeighbours(host.netlink).list(index),
        features=tuple(sorted(features.wanted & features.changeable)),
        changeable=tuple(sorted(features.changeable)),
        flags=host.ethtool.flags(index),
        sysctls=host.visited(lambda: link_sysctls.read_all(whole.link.name)),
        queues=SavedQdiscs(host.netlink).list(index),
    )


def attributes_of(whole: LinkDetails) -> Attributes:
    link = whole.link
    return Attributes(
        mac=link.mac or None,
        mtu=link.mtu,
        queue=link.queue,
        alias=link.alias,
        up=link.up,
        promiscuous=link.promiscuous,
        all_multicast=link.all_multicast,
        gso_max_size=whole.gso_max_size,
        gso_max_segments=whole.gso_max_segments,
        gro_max_size=whole.gro_max_size,
        gso_ipv4_max_size=whole.gso_ipv4_max_size,
        gro_ipv4_max_size=whole.gro_ipv4_max_size,
    )


def rules_of(name: str, routes: tuple[SavedRoute, ...], rules: tuple[SavedRule, ...]) -> tuple[SavedRule, ...]:
    """Those that concern a link."""
    tables = {each.table for each in routes} - _EVERYBODYS
    return tuple(each for each in rules if each.names(name) or each.table in tables)


def different(wanted: Attributes, now: Attributes) -> Attributes:
    """What is to be set, so that it becomes what is wanted; all else is None."""
    changed = (None if ours == theirs else ours for ours, theirs in zip(wanted, now, strict=True))
    return Attributes._make(changed)


def restore(host: Place, index: int, wanted: Snapshot) -> tuple[str, ...]:
    """Make a link of the host what it was; what is right stays untouched. Returns what could not be, in words.

    Its alias comes last: until then it says whose the link is. NoSuchLink.
    """
    links = DetailedLinks(host.netlink)
    lost = _restore_link(host, index, wanted)
    name = links.get(index).link.name
    lost += host.visited(lambda: link_sysctls.restore(name, wanted.sysctls))
    if wanted.attributes.up:
        links.change(index, Attributes(up=True))
    addresses = SavedAddresses(host.netlink)
    addresses.restore(index, wanted.addresses, addresses.list().get(index, ()))
    lost += SavedRoutes(host.netlink).restore(index, wanted.routes)
    SavedNeighbours(host.netlink).restore(index, wanted.neighbours)
    lost += _restore_hardware(host, index, wanted)
    lost += SavedQdiscs(host.netlink).restore(index, wanted.queues)
    now = links.get(index).link
    if now.alias != wanted.attributes.alias:
        links.change(index, Attributes(alias=wanted.attributes.alias))
    return lost


def _restore_link(host: Place, index: int, wanted: Snapshot) -> tuple[str, ...]:
    links = DetailedLinks(host.netlink)
    now = links.get(index)
    changes = different(wanted.attributes, attributes_of(now))._replace(alias=None, up=None)
    renamed = now.link.name != wanted.name
    must_rest = now.link.up and (renamed or changes.mac is not None or not wanted.attributes.up)
    if must_rest:  # many drivers take a new MAC address only then
        links.change(index, Attributes(up=False))
    if changes != Attributes():
        links.change(index, changes)
    if not renamed:
        return ()
    try:
        links.change(index, Attributes(name=wanted.name))
    except errors.LinkExists:
        return (f"the name {wanted.name}: another link has it; it is {now.link.name} now",)
    return ()


def _restore_hardware(host: Place, index: int, wanted: Snapshot) -> tuple[str, ...]:
    lost: list[str] = []
    now = host.ethtool.features(index)
    asked = {name: name in wanted.features for name in wanted.changeable}
    changes = {name: value for name, value in asked.items() if (name in now.wanted) != value}
    flags = {name: value for name, value in wanted.flags.items() if host.ethtool.flags(index).get(name) != value}
    for values, put in ((changes, host.ethtool.set_features), (flags, host.ethtool.set_flags)):
        try:
            if values:
                put(index, values)
        except errors.LinuxError as error:
            lost.append(str(error))
    return tuple(lost)
