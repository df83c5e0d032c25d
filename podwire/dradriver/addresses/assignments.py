"""Assigned addresses as an immutable value, and how each demand changes it. Pure.

Addresses from pools and those that claims name are assigned together, so that neither is given where the other is. An
address belongs to a claim, which may name the same address for two of its own devices.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from ipaddress import ip_address, ip_interface
from typing import NamedTuple

import msgspec

from podwire.dradriver.addresses.keys import Key
from podwire.dradriver.addresses.pools import Pool
from podwire.dradriver.claims.allocations import ClaimRef, Refused
from podwire.dradriver.parameters.settings import Interface
from podwire.ipam import ranges
from podwire.ipam.ranges import RangeSet

_MAX_NAMED = 3
"""Claims with the most addresses that an Exhausted error names."""


class Exhausted(Exception):
    """A pool has no address left; a retry may succeed when one is released."""


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of one key, and its demand: the same demand gets the same addresses, even if pools change."""

    uid: str
    namespace: str
    name: str
    request: str
    device: str
    share_id: str
    pool: str
    families: tuple[int, ...]
    wanted: tuple[str, ...]
    given: tuple[str, ...]
    """Addresses from the pool, with their prefixes."""

    @property
    def key(self) -> Key:
        claim = ClaimRef(namespace=self.namespace, name=self.name, uid=self.uid)
        return Key(claim=claim, request=self.request, device=self.device, share_id=self.share_id)

    @property
    def ips(self) -> tuple[str, ...]:
        """As text: all addresses are compared, and few are parsed."""
        return self.wanted_ips + tuple(address.partition("/")[0] for address in self.given)

    @property
    def wanted_ips(self) -> tuple[str, ...]:
        return tuple(address.partition("/")[0] for address in self.wanted)

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        return tuple(map(ip_interface, self.wanted + self.given))


class Assignments(msgspec.Struct, frozen=True, kw_only=True):
    held: tuple[Assignment, ...] = ()
    last: dict[str, str] = {}
    """By range set, the address that was assigned last: a released address is reused as late as possible."""


class Demand(NamedTuple):
    key: Key
    pool: Pool | None
    families: tuple[int, ...]
    wanted: tuple[Interface, ...]

    @property
    def pool_name(self) -> str:
        return self.pool.name if self.pool else ""

    def is_met_by(self, held: Assignment) -> bool:
        wanted = tuple(map(str, self.wanted))
        return (held.pool, held.families, held.wanted) == (self.pool_name, self.families, wanted)

    def range_sets(self) -> Iterator[tuple[str, RangeSet]]:
        """The range sets to take one address of each, with their stable names."""
        for number, range_set in self.pool.sets_of(self.families) if self.pool else ():
            yield f"{self.pool_name}/{number}", range_set


def found(present: Assignments, key: Key) -> Assignment | None:
    """Compares by the claim's uid: a claim that was created again has the same name."""
    owner = (key.claim.uid, key.request, key.device, key.share_id)
    held = ((entry, (entry.uid, entry.request, entry.device, entry.share_id)) for entry in present.held)
    return next((entry for entry, holder in held if holder == owner), None)


def assign(present: Assignments, demand: Demand) -> tuple[Assignments, tuple[Interface, ...]]:
    """Returns the new assignments, and the addresses of the demand. Raises Refused, Exhausted."""
    had = found(present, demand.key)
    if had is not None and demand.is_met_by(had):
        return present, had.interfaces
    others = tuple(entry for entry in present.held if entry is not had)
    _check_free(demand, others)
    taken = {ip for entry in others for ip in entry.ips} | {str(interface.ip) for interface in demand.wanted}
    last = dict(present.last)
    given: list[str] = []
    for name, set_ in demand.range_sets():
        begun = ip_address(last[name]) if last.get(name) else None
        ip = next((candidate for candidate in ranges.after(set_, begun) if str(candidate) not in taken), None)
        part = None if ip is None else ranges.find_range(set_, ip)
        if ip is None or part is None:
            raise Exhausted(_exhausted(demand.pool_name, set_, others))
        last[name] = str(ip)
        taken.add(str(ip))
        given.append(str(part.interface(ip)))
    wanted = tuple(map(str, demand.wanted))
    entry = entry_of(demand.key, pool=demand.pool_name, families=demand.families, wanted=wanted, given=tuple(given))
    return Assignments(held=(*others, entry), last=last), entry.interfaces


def without(present: Assignments, uids: Collection[str]) -> Assignments:
    """Returns what is left when these claims release what they have."""
    left = tuple(entry for entry in present.held if entry.uid not in uids)
    return present if len(left) == len(present.held) else Assignments(held=left, last=present.last)


def with_known(present: Assignments, known: Iterable[Assignment]) -> Assignments:
    """Adds these assignments for keys that have none."""
    missing = tuple(entry for entry in known if found(present, entry.key) is None)
    return Assignments(held=(*present.held, *missing), last=present.last) if missing else present


def entry_of(
    key: Key, *, pool: str, wanted: tuple[str, ...], given: tuple[str, ...], families: tuple[int, ...] = ()
) -> Assignment:
    return Assignment(
        uid=key.claim.uid,
        namespace=key.claim.namespace,
        name=key.claim.name,
        request=key.request,
        device=key.device,
        share_id=key.share_id,
        pool=pool,
        families=families,
        wanted=wanted,
        given=given,
    )


def _check_free(demand: Demand, others: Sequence[Assignment]) -> None:
    if not demand.wanted:
        return
    owners = {ip: entry for entry in others for ip in entry.ips}
    for interface in demand.wanted:
        owner = owners.get(str(interface.ip))
        if owner is not None and (owner.uid != demand.key.claim.uid or str(interface.ip) not in owner.wanted_ips):
            raise Refused("interface.addresses", f"{interface.ip} is held by {owner.key}")
        if demand.pool and interface.ip in demand.pool.gateways:
            raise Refused("interface.addresses", f"{interface.ip} is the gateway of pool {demand.pool.name}")


def _exhausted(pool: str, set_: RangeSet, others: Sequence[Assignment]) -> str:
    counted = Counter(
        f"{entry.namespace}/{entry.name}"
        for entry in others
        for interface in entry.interfaces
        if ranges.find_range(set_, interface.ip) is not None
    )
    most = ", ".join(f"{who} ({many})" for who, many in counted.most_common(_MAX_NAMED))
    text = f"pool {pool}: no address is left in {ranges.describe(set_)}, all {ranges.size(set_)} are held"
    return f"{text}; most by {most}" if most else text
