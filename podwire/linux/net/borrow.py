"""Snapshot and restore of a host link that a pod borrows.

Used by the CNI plugin host-device, the device plugin and the DRA network driver. The caller owns the record that holds
the snapshot; this module only reads and writes the kernel. Each step is idempotent, so that a caller that was killed
repeats the sequence from its record:

| step | function | state if the process is killed after it |
|---|---|---|
| 1 | `snapshot_link`, then the caller writes its record | the link is on the host, unchanged |
| 2 | the caller sets its owner tag (the link's alias) | the link is on the host, tagged |
| 3 | `lend_link` | the link is in the pod, down, tagged |
| 4 | `return_link` (a physical link returns by itself when the pod's namespace ends) | on the host, down, tagged |
| 5 | `restore_link` | the link is what it was; the alias is set last, so a tagged link is never a restored one |
| 6 | the caller removes its record | - |

What the kernel forgets when a link changes its namespace, and `restore_link` therefore sets again: up/down, addresses,
routes, permanent neighbours, qdiscs, sysctls, the master. What a pod can change, and is set again, too: name, MAC
address, MTU, queue length, offload sizes, features, private flags, alternative names. Policy routing rules stay on the
host, where they match the link by its name; they are saved only for callers that copy them into the pod. Filters of
qdiscs and eBPF programs cannot be saved; they are reported as lost.
"""

import errno
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from podwire.linux import errors
from podwire.linux.net import link_sysctls
from podwire.linux.net.link_attributes import Attributes, DetailedLinks, LinkDetails
from podwire.linux.net.namespace_handle import NamespaceHandle
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.snapshot_addresses import SavedAddress, SavedAddresses
from podwire.linux.net.snapshot_neighbours import SavedNeighbour, SavedNeighbours
from podwire.linux.net.snapshot_qdiscs import SavedQdisc, SavedQdiscs
from podwire.linux.net.snapshot_routes import SavedRoute, SavedRoutes
from podwire.linux.net.snapshot_rules import SavedRule, SavedRules
from podwire.linux.values import LOCAL, MAIN, Link

_DEFAULT = 253
_COMMON_TABLES = frozenset((0, _DEFAULT, MAIN, LOCAL))
"""Routing tables that are consulted without a rule of their own."""
_FLAT = ("mac", "mtu", "queue", "up", "promiscuous", "all_multicast")


class LinkSnapshot(NamedTuple):
    """A host link as it was. An attribute that is None was not saved, and is not restored."""

    name: str
    kind: str = ""
    mac: str = ""
    permanent_mac: str = ""
    peer: int = 0
    """Index of the link that this one is connected to or stacked on; moves do not change it."""
    attributes: Attributes = Attributes()
    """All that one message sets, without name and master."""
    addresses: tuple[SavedAddress, ...] = ()
    routes: tuple[SavedRoute, ...] = ()
    rules: tuple[SavedRule, ...] = ()
    """Rules that name the link, or look up tables that its routes are in. They stay on the host."""
    neighbours: tuple[SavedNeighbour, ...] = ()
    features: tuple[str, ...] = ()
    """Requested features, of those that can be changed."""
    changeable: tuple[str, ...] = ()
    flags: Mapping[str, bool] = {}
    """The driver's private flags."""
    sysctls: Mapping[str, str] = {}
    queues: tuple[SavedQdisc, ...] = ()
    alt_names: tuple[str, ...] = ()
    master: str = ""
    """Name of the bridge or bond that it was a port of."""
    exact_addresses: bool = True
    """Whether `restore_link` removes addresses that the snapshot does not have."""


def snapshot_link(host: NamespaceHandle, index: int) -> LinkSnapshot:
    """Takes a full snapshot; changes nothing. Raises NoSuchLink."""
    details = DetailedLinks(host.netlink).get(index)
    link = details.link
    features = host.ethtool.features(index)
    routes = SavedRoutes(host.netlink).list(index)
    return LinkSnapshot(
        name=link.name,
        kind=link.kind,
        mac=link.mac,
        permanent_mac=details.permanent_mac,
        peer=link.peer,
        attributes=attributes_of(details),
        addresses=SavedAddresses(host.netlink).list().get(index, ()),
        routes=routes,
        rules=select_rules(link.name, routes, SavedRules(host.netlink).list()),
        neighbours=SavedNeighbours(host.netlink).list(index),
        features=tuple(sorted(features.wanted & features.changeable)),
        changeable=tuple(sorted(features.changeable)),
        flags=host.ethtool.flags(index),
        sysctls=host.visited(lambda: link_sysctls.read_all(link.name)),
        queues=SavedQdiscs(host.netlink).list(index),
        alt_names=details.alt_names,
        master=host.links.get(link.master).name if link.master else "",
    )


def snapshot_of(link: Link, addresses: tuple[SavedAddress, ...]) -> LinkSnapshot:
    """Makes a snapshot of link attributes and addresses alone, from a dump that the caller has. The alias is not saved.

    Cheap enough to compare all links with their snapshots at every netlink event.
    """
    values = {name: getattr(link, name) for name in _FLAT}
    attributes = Attributes(**values | {"mac": link.mac or None})
    return LinkSnapshot(link.name, link.kind, link.mac, attributes=attributes, addresses=addresses)


def attributes_of(details: LinkDetails) -> Attributes:
    link = details.link
    return Attributes(
        mac=link.mac or None,
        mtu=link.mtu,
        queue=link.queue,
        alias=link.alias,
        up=link.up,
        promiscuous=link.promiscuous,
        all_multicast=link.all_multicast,
        gso_max_size=details.gso_max_size,
        gso_max_segments=details.gso_max_segments,
        gro_max_size=details.gro_max_size,
        gso_ipv4_max_size=details.gso_ipv4_max_size,
        gro_ipv4_max_size=details.gro_ipv4_max_size,
    )


def select_rules(name: str, routes: tuple[SavedRoute, ...], rules: tuple[SavedRule, ...]) -> tuple[SavedRule, ...]:
    """Selects the rules that concern a link."""
    tables = {route.table for route in routes} - _COMMON_TABLES
    return tuple(rule for rule in rules if rule.names(name) or rule.table in tables)


def changes_to(wanted: Attributes, now: Attributes) -> Attributes:
    """Returns the attributes of `wanted` that differ from `now`; all others are None."""
    return Attributes._make(None if ours == theirs else ours for ours, theirs in zip(wanted, now, strict=True))


def is_same_link(snapshot: LinkSnapshot, details: LinkDetails) -> bool:
    """Compares what neither a move nor a pod can change: the kind, the hardware's MAC address, the peer."""
    same = details.link.kind == snapshot.kind and details.permanent_mac == snapshot.permanent_mac
    return same and (snapshot.kind == "" or details.link.peer == snapshot.peer)


def was_moved(before: LinkSnapshot, now: LinkSnapshot) -> bool:
    """Whether a link looks like one that was in another namespace: down and without addresses."""
    return bool(before.attributes.up or before.addresses) and not now.attributes.up and not now.addresses


def lend_link(host: NamespaceHandle, index: int, pod: NamespaceHandle, attributes: Attributes) -> int:
    """Moves a link into a pod, where it arrives down with these attributes; returns its index there.

    Raises LinkExists before anything is changed: the kernel moves first and renames afterwards, so a name that is
    taken would leave the link in the pod under its old one.
    """
    return _move(host.netlink, index, pod, attributes)


def return_link(
    pod: NamespaceHandle, index: int, host: NamespaceHandle, snapshot: LinkSnapshot, spare_name: str
) -> int:
    """Moves a link from its pod to the host, down, under its own name; returns its index there.

    If the name is taken there it gets `spare_name`: the pod's namespace may end before somebody comes again, and a
    virtual link would end with it. The alias, which is the caller's owner tag, stays.
    """
    links = DetailedLinks(pod.netlink)
    links.change(index, Attributes(up=False))
    # What is right is not set again: some drivers refuse to set a MAC address, even the one that they have.
    changes = changes_to(snapshot.attributes, attributes_of(links.get(index)))
    attributes = changes._replace(name=snapshot.name, alias=None, up=None)
    try:
        return _move(pod.netlink, index, host, attributes)
    except errors.LinkExists:
        return _move(pod.netlink, index, host, attributes._replace(name=spare_name))


def _move(source: Netlink, index: int, target: NamespaceHandle, attributes: Attributes) -> int:
    name = attributes.name or ""
    with suppress(errors.NoSuchLink):
        target.links.get(name)
        raise errors.LinkExists(errno.EEXIST, f"name the link {name}", "another link has this name there")
    DetailedLinks(source).change(index, attributes, target.netns)
    return target.links.get(name).ifindex


def rename_back(host: NamespaceHandle, index: int, snapshot: LinkSnapshot) -> None:
    """Gives a link its own name again. Raises LinkExists when another link has it; NoSuchLink."""
    now = host.links.get(index)
    if now.name == snapshot.name:
        return
    if now.up:
        host.links.change(index, up=False)
    host.links.change(index, name=snapshot.name)


def restore_link(host: NamespaceHandle, index: int, wanted: LinkSnapshot) -> tuple[str, ...]:
    """Restores a link of the host; what is right is not touched. Returns what could not be restored, as messages.

    The alias is set last: until then it is the owner tag by which an interrupted restore is found. Raises NoSuchLink.
    """
    links = DetailedLinks(host.netlink)
    details = links.get(index)
    lost = [*_restore_attributes(host, links, details, wanted)]
    name = links.get(index).link.name
    if wanted.sysctls:
        lost += host.visited(lambda: link_sysctls.restore(name, wanted.sysctls))
    lost += _restore_names_and_master(host, links, details, wanted)
    if wanted.attributes.up:
        links.change(index, Attributes(up=True))
    addresses = SavedAddresses(host.netlink)
    present = addresses.list().get(index, ())
    addresses.restore(index, wanted.addresses, present if wanted.exact_addresses else ())
    lost += SavedRoutes(host.netlink).restore(index, wanted.routes)
    SavedNeighbours(host.netlink).restore(index, wanted.neighbours)
    lost += _restore_hardware(host, index, wanted)
    lost += SavedQdiscs(host.netlink).restore(index, wanted.queues)
    if wanted.attributes.alias not in (None, links.get(index).link.alias):
        links.change(index, Attributes(alias=wanted.attributes.alias))
    return tuple(lost)


def _restore_attributes(
    host: NamespaceHandle, links: DetailedLinks, details: LinkDetails, wanted: LinkSnapshot
) -> tuple[str, ...]:
    link = details.link
    changes = changes_to(wanted.attributes, attributes_of(details))._replace(alias=None, up=None)
    goes_down = changes.mac is not None or wanted.attributes.up is False
    if link.up and goes_down:  # many drivers take a new MAC address only when the link is down
        links.change(link.ifindex, Attributes(up=False))
    if changes != Attributes():
        links.change(link.ifindex, changes)
    try:
        rename_back(host, link.ifindex, wanted)
    except errors.LinkExists:
        return (f"the name {wanted.name}: another link has it, so the link is called {link.name}",)
    return ()


def _restore_names_and_master(
    host: NamespaceHandle, links: DetailedLinks, details: LinkDetails, wanted: LinkSnapshot
) -> tuple[str, ...]:
    lost: list[str] = []
    for name in wanted.alt_names:
        try:
            if name not in details.alt_names:
                links.add_alt_name(details.link.ifindex, name)
        except errors.LinuxError as error:
            lost.append(str(error))
    if wanted.master:
        try:
            master = host.links.get(wanted.master).ifindex
            if details.link.master != master:
                host.links.change(details.link.ifindex, master=master)
        except errors.LinuxError as error:
            lost.append(f"the master {wanted.master}: {error}")
    return tuple(lost)


def _restore_hardware(host: NamespaceHandle, index: int, wanted: LinkSnapshot) -> tuple[str, ...]:
    if not wanted.changeable and not wanted.flags:
        return ()
    lost: list[str] = []
    now = host.ethtool.features(index)
    requested = {name: name in wanted.features for name in wanted.changeable}
    features = {name: value for name, value in requested.items() if (name in now.wanted) != value}
    present = host.ethtool.flags(index) if wanted.flags else {}
    flags = {name: value for name, value in wanted.flags.items() if present.get(name) != value}
    for values, change in ((features, host.ethtool.set_features), (flags, host.ethtool.set_flags)):
        try:
            if values:
                change(index, values)
        except errors.LinuxError as error:
            lost.append(str(error))
    return tuple(lost)


def encode(snapshot: LinkSnapshot) -> dict[str, Any]:
    """Returns plain JSON values, in the form that the network driver's records always had."""
    encoded: dict[str, Any] = _plain(snapshot)
    return encoded


def _plain(value: object) -> Any:
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        items = [_plain(item) for item in value]
        return items if names is None else dict(zip(names, items, strict=True))
    return dict(value) if isinstance(value, Mapping) else value


def decode(raw: Mapping[str, Any]) -> LinkSnapshot:
    """Reads what `encode` wrote, and the flat form of the device plugin's older records.

    Raises TypeError, KeyError, ValueError, AttributeError for anything else.
    """
    if "attributes" in raw:
        fields = {**raw, "attributes": Attributes(**raw["attributes"])}
    else:
        flat = {name: raw[name] for name in _FLAT}
        fields = {name: value for name, value in raw.items() if name not in _FLAT or name == "mac"}
        fields["attributes"] = Attributes(**flat | {"mac": raw["mac"] or None})
    for name, kind in _KINDS.items():
        if name in fields:
            fields[name] = tuple(_decode_saved(kind, saved) for saved in fields[name])
    for name in ("features", "changeable", "alt_names"):
        if name in fields:
            fields[name] = tuple(map(str, fields[name]))
    for name in ("flags", "sysctls"):
        if name in fields:
            fields[name] = dict(fields[name])
    return LinkSnapshot(**fields)


_KINDS: Mapping[str, Any] = {
    "addresses": SavedAddress,
    "routes": SavedRoute,
    "rules": SavedRule,
    "neighbours": SavedNeighbour,
    "queues": SavedQdisc,
}


def _decode_saved(kind: Any, raw: Mapping[str, Any]) -> Any:
    if "attributes" not in raw:
        return kind(**raw)
    attributes = tuple((int(number), bytes.fromhex(value).hex()) for number, value in raw["attributes"])
    return kind(**{**raw, "attributes": attributes})
