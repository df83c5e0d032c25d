"""Who has which address, as a value, and what becomes of it with each demand. Pure.

Addresses from pools and those that claims name themselves stand in one book: so neither is given where the other is.
An address belongs to a claim; one that names the same address for two of its own devices may.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from ipaddress import ip_address, ip_interface
from typing import NamedTuple

import msgspec

from podwire.dradriver.addresses.keys import Key
from podwire.dradriver.addresses.pools import Pool
from podwire.dradriver.claims.allocations import ClaimRef, Refused
from podwire.dradriver.parameters.settings import IP, Interface
from podwire.ipam import ranges
from podwire.ipam.ranges import RangeSet

VERSION = 1
_MOST = 3
"""How many of those who hold most are named when nothing is left."""


class Exhausted(Exception):
    """A pool has no address left. Some may come back, so it can be tried again."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What one key has, and what it asked for: who asks the same again gets the same, even if pools change."""

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
    """Those from the pool, with their prefixes."""

    @property
    def key(self) -> Key:
        claim = ClaimRef(namespace=self.namespace, name=self.name, uid=self.uid)
        return Key(claim=claim, request=self.request, device=self.device, share_id=self.share_id)

    @property
    def ips(self) -> tuple[str, ...]:
        """As text: addresses of a whole book are compared, and few of them read."""
        return self.wanted_ips + tuple(each.partition("/")[0] for each in self.given)

    @property
    def wanted_ips(self) -> tuple[str, ...]:
        return tuple(each.partition("/")[0] for each in self.wanted)

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        return tuple(map(ip_interface, self.wanted + self.given))


class Book(msgspec.Struct, frozen=True, kw_only=True):
    version: int = VERSION
    held: tuple[Held, ...] = ()
    last: dict[str, str] = {}
    """What each set of each pool gave last: an address that came back rests until all others had their turn."""


class Demand(NamedTuple):
    key: Key
    pool: Pool | None
    families: tuple[int, ...]
    wanted: tuple[Interface, ...]

    @property
    def pool_name(self) -> str:
        return self.pool.name if self.pool else ""

    def is_met_by(self, held: Held) -> bool:
        wanted = tuple(map(str, self.wanted))
        return (held.pool, held.families, held.wanted) == (self.pool_name, self.families, wanted)

    def turns(self) -> Iterator[tuple[str, RangeSet]]:
        """The sets to take one address of each, by names that are the same every time."""
        for number, each in self.pool.sets_of(self.families) if self.pool else ():
            yield f"{self.pool_name}/{number}", each


def found(book: Book, key: Key) -> Held | None:
    return next((each for each in book.held if _is(each, key)), None)


def granted(book: Book, demand: Demand) -> tuple[Book, tuple[Interface, ...]]:
    """The book as it is to be, and the addresses. Refused, Exhausted."""
    had = found(book, demand.key)
    if had is not None and demand.is_met_by(had):
        return book, had.interfaces
    others = tuple(each for each in book.held if each is not had)
    _check_free(demand, others)
    taken = {ip for entry in others for ip in entry.ips} | {str(each.ip) for each in demand.wanted}
    last = dict(book.last)
    given: list[str] = []
    for turn, set_ in demand.turns():
        ip = _next(set_, last.get(turn), taken)
        part = None if ip is None else ranges.find_range(set_, ip)
        if ip is None or part is None:
            raise Exhausted(_exhausted(demand.pool_name, set_, others))
        last[turn] = str(ip)
        taken.add(str(ip))
        given.append(str(part.interface(ip)))
    wanted = tuple(map(str, demand.wanted))
    entry = entry_of(demand.key, pool=demand.pool_name, families=demand.families, wanted=wanted, given=tuple(given))
    return Book(held=(*others, entry), last=last), entry.interfaces


def without(book: Book, uids: Collection[str]) -> Book:
    """What is left when these claims give back what they have."""
    left = tuple(each for each in book.held if each.uid not in uids)
    return book if len(left) == len(book.held) else Book(held=left, last=book.last)


def with_known(book: Book, known: Iterable[Held]) -> Book:
    """The same with what these have, wherever it says nothing of them."""
    missing = tuple(each for each in known if found(book, each.key) is None)
    return Book(held=(*book.held, *missing), last=book.last) if missing else book


def _is(held: Held, key: Key) -> bool:
    """By the claim's uid: its name says nothing, a claim made anew may have it."""
    return (held.uid, held.request, held.device, held.share_id) == (
        key.claim.uid, key.request, key.device, key.share_id
    )  # fmt: skip


def entry_of(
    key: Key, *, pool: str, wanted: tuple[str, ...], given: tuple[str, ...], families: tuple[int, ...] = ()
) -> Held:
    return Held(
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


def _check_free(demand: Demand, others: Sequence[Held]) -> None:
    if not demand.wanted:
        return
    owners = {ip: entry for entry in others for ip in entry.ips}
    for each in demand.wanted:
        owner = owners.get(str(each.ip))
        if owner is not None and (owner.uid != demand.key.claim.uid or str(each.ip) not in owner.wanted_ips):
            raise Refused("interface.addresses", f"{each.ip} is held by {owner.key}")
        if demand.pool and each.ip in demand.pool.gateways:
            raise Refused("interface.addresses", f"{each.ip} is the gateway of pool {demand.pool.name}")


def _next(set_: RangeSet, last: str | None, taken: Collection[str]) -> IP | None:
    begun = ip_address(last) if last else None
    return next((each for each in ranges.after(set_, begun) if str(each) not in taken), None)


def _exhausted(pool: str, set_: RangeSet, others: Sequence[Held]) -> str:
    counted = Counter(
        f"{entry.namespace}/{entry.name}"
        for entry in others
        for each in entry.interfaces
        if ranges.find_range(set_, each.ip) is not None
    )
    most = ", ".join(f"{who} ({many})" for who, many in counted.most_common(_MOST))
    told = f"pool {pool}: no address is left in {ranges.describe(set_)}, all {ranges.size(set_)} are held"
    return f"{told}; most by {most}" if most else told
