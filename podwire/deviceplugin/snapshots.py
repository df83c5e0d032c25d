"""A link as it is on the host, and made so again when a pod gives it back.

Kept are its name, MAC address, MTU, queue, addresses, and whether it is up, promiscuous, hears all multicast. Its
alias is not: whoever moves links marks them there, and takes the mark away.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from podwire.linux.net.links import KernelLinks
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.snapshot_addresses import SavedAddress, SavedAddresses
from podwire.linux.values import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    name: str
    kind: str
    mac: str
    mtu: int
    queue: int
    up: bool
    promiscuous: bool
    all_multicast: bool
    addresses: tuple[SavedAddress, ...] = ()


def taken(link: Link, addresses: Sequence[SavedAddress]) -> Snapshot:
    return Snapshot(
        name=link.name,
        kind=link.kind,
        mac=link.mac,
        mtu=link.mtu,
        queue=link.queue,
        up=link.up,
        promiscuous=link.promiscuous,
        all_multicast=link.all_multicast,
        addresses=tuple(addresses),
    )


def travelled(before: Snapshot, now: Snapshot) -> bool:
    """Whether a link looks as one does that was in another namespace: down and without addresses."""
    return (before.up or bool(before.addresses)) and not now.up and not now.addresses


def restore(netlink: Netlink, ifindex: int, wanted: Snapshot) -> bool:
    """Make a link what it was; what is right stays untouched. Returns whether something was wrong.

    Raises NoSuchLink when it leaves meanwhile, LinkExists when its name is another's.
    """
    links, kept = KernelLinks(netlink), SavedAddresses(netlink)
    now = taken(links.get(ifindex), kept.list().get(ifindex, ()))
    if now == wanted:
        return False
    if now.up and (not wanted.up or (now.mac, now.name) != (wanted.mac, wanted.name)):
        links.change(ifindex, up=False)  # many drivers take a new MAC address only then
    links.change(
        ifindex,
        name=wanted.name if wanted.name != now.name else None,
        mac=wanted.mac if wanted.mac != now.mac else None,
        mtu=wanted.mtu if wanted.mtu != now.mtu else None,
        queue=wanted.queue if wanted.queue != now.queue else None,
        promiscuous=wanted.promiscuous if wanted.promiscuous != now.promiscuous else None,
        all_multicast=wanted.all_multicast if wanted.all_multicast != now.all_multicast else None,
    )
    if wanted.up:
        links.change(ifindex, up=True)
    kept.restore(ifindex, wanted.addresses, kept.list().get(ifindex, ()))
    return True


def encoded(snapshot: Snapshot) -> dict[str, Any]:
    return {**asdict(snapshot), "addresses": [each._asdict() for each in snapshot.addresses]}


def decoded(raw: dict[str, Any]) -> Snapshot:
    """Raises TypeError, KeyError, ValueError for what `encoded` did not make."""
    addresses = tuple(_address(each) for each in raw["addresses"])
    return Snapshot(**{**raw, "addresses": addresses})


def _address(raw: dict[str, Any]) -> SavedAddress:
    attributes = tuple((int(kind), bytes.fromhex(value).hex()) for kind, value in raw["attributes"])
    return SavedAddress(**{**raw, "attributes": attributes})
