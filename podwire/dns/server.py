"""Answers queries: from bytes that are ready, from the cluster's names, from the cache, or after asking other servers.

Three paths, the fastest first:

    encoded    the same query was answered before: the id and the question's case are the client's, the rest is copied
    decided    a name of the cluster, of `hosts`, or a cached name: decided and encoded now, and kept encoded
    forwarded  another server has to be asked: the only path that waits

Encoded answers are forgotten when anything of the cluster or of the configuration changes.
"""

import asyncio
import logging
import random
import struct
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address

from podwire.dns import metrics as names
from podwire.dns.config import Config
from podwire.dns.forward import Cached, Forwarder, Unreachable
from podwire.dns.limits import Limits
from podwire.dns.metrics import Answered, Metrics
from podwire.dns.ports import Reply
from podwire.dns.zone import Answer, Zone, reverse_address
from podwire.interfaces import Clock
from podwire.protocols.dns import codes
from podwire.protocols.dns.answers import Record, build, empty, limit_of, records_of, refusal, truncated
from podwire.protocols.dns.queries import Malformed, Name, Query, read_query
from podwire.protocols.dns.relay import relay, ttl_offsets

_log = logging.getLogger("podwire.dns")

CLUSTER, OTHERS = "cluster", "."
"""Zones in metrics."""
_VARIANTS = 4
"""Orders in which several addresses are answered by turns."""
_META_TYPES = frozenset({0, codes.OPT, *range(128, 251), 253, 254})
_TRANSFERS = frozenset({codes.AXFR, codes.IXFR})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    clients: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks whose queries are answered; empty for all."""


class _Encoded:
    """An answer as bytes, without the parts that are the client's."""

    __slots__ = ("answered", "end", "expires", "head", "stored", "tails", "ttls", "turn", "zone")

    def __init__(
        self, replies: Sequence[bytes], end: int, answered: Answered, zone: str, stored: float, expires: float
    ) -> None:
        self.head = replies[0][2:12]
        self.tails = [reply[end:] for reply in replies]
        self.end = end
        self.answered = answered
        self.zone = zone
        self.stored = stored
        self.expires = expires
        self.ttls: tuple[tuple[int, int], ...] = ()
        """Set where TTLs count down: not for names of the cluster."""
        self.turn = 0

    def tail(self, now: float) -> bytes:
        if self.ttls and (age := int(now - self.stored)):
            tail = bytearray(self.tails[0])
            for offset, ttl in self.ttls:
                struct.pack_into("!I", tail, offset, max(ttl - age, 0))
            return bytes(tail)
        self.turn = (self.turn + 1) % len(self.tails)
        return self.tails[self.turn]


class Server:
    def __init__(
        self,
        zone: Zone,
        forwarder: Forwarder,
        metrics: Metrics,
        clock: Clock,
        settings: Settings | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._zone = zone
        self._forwarder = forwarder
        self._metrics = metrics
        self._now = clock.monotonic
        self._clients = (settings or Settings()).clients
        self._limits = limits or Limits()
        self._config = Config()
        self._encoded: tuple[dict[bytes, _Encoded], dict[bytes, _Encoded]] = ({}, {})
        self._sent: dict[str, int] = {}
        self._window_ends = 0.0
        metrics.gauges[names.ENCODED] = lambda: sum(map(len, self._encoded))

    def changed(self) -> None:
        """Forgets encoded answers: the cluster or the configuration is another now."""
        for encoded in self._encoded:
            encoded.clear()

    def configure(self, config: Config) -> None:
        self._config = config
        self.changed()

    def udp(self, data: bytes, address: str) -> Reply | Awaitable[Reply]:
        """Answers a datagram; an address that has received too many bytes within a second must use TCP (TC bit)."""
        now = self._now()
        if now >= self._window_ends:
            self._sent, self._window_ends = {}, now + 1.0
        sent = self._sent.get(address)
        if sent is None:
            if len(self._sent) >= self._limits.client_addresses:
                return None
            sent = 0 if self._may_ask(address) else -1
            self._sent[address] = sent
        if not 0 <= sent <= self._limits.bytes_per_second:
            return self._restrict(data, refused=sent < 0)
        reply = self._answer(data, now, 0)
        if isinstance(reply, bytes):
            self._sent[address] = sent + len(reply)
        elif reply is not None:
            return self._counted(reply, address)
        return reply

    async def _counted(self, pending: Awaitable[Reply], address: str) -> Reply:
        """Counts an answer that other servers had to give, in the second in which it is sent."""
        reply = await pending
        if reply is not None and self._sent.get(address, 0) >= 0:
            self._sent[address] = self._sent.get(address, 0) + len(reply)
        return reply

    def tcp(self, data: bytes, address: str) -> Reply | Awaitable[Reply]:
        return self._answer(data, self._now(), 1) if self._may_ask(address) else self._restrict(data, refused=True)

    def _may_ask(self, address: str) -> bool:
        if not self._clients:
            return True
        ip = ip_address(address.partition("%")[0])
        own = getattr(ip, "ipv4_mapped", None) or ip
        return any(own.version == network.version and own in network for network in self._clients)

    def _restrict(self, data: bytes, *, refused: bool) -> Reply:
        """An answer that is not larger than the query."""
        try:
            query = read_query(data)
        except Malformed:
            return None
        self._metrics.counts[names.LIMITED] += not refused
        return empty(query, data, codes.REFUSED) if refused else truncated(query, data, codes.NOERROR)

    def _answer(self, data: bytes, now: float, tcp: int) -> Reply | Awaitable[Reply]:
        zero = data.find(0, 12)
        key = data[2:12] + data[12:zero].lower() + data[zero:]
        entry = self._encoded[tcp].get(key)
        if entry is not None:
            if now < entry.expires:
                entry.answered.count += 1
                tails = entry.tails
                tail = tails[0] if len(tails) == 1 and not entry.ttls else entry.tail(now)
                self._metrics.duration[entry.zone].observe(self._now() - now)
                return data[:2] + entry.head + data[12 : entry.end] + tail
            del self._encoded[tcp][key]
        try:
            query = read_query(data)
        except Malformed as error:
            self._metrics.counts[names.MALFORMED] += 1
            return None if error.rcode is None else refusal(data, error.rcode)
        return self._decide(query, data, now, tcp, key if query.edns is None or query.edns.bare else b"")

    def _decide(self, query: Query, data: bytes, now: float, tcp: int, key: bytes) -> Reply | Awaitable[Reply]:
        rcode = _objection(query)
        if rcode is not None:
            return self._count(query, empty(query, data, rcode), rcode, OTHERS, now, tcp)
        name = query.name
        if self._forwarder.note_probe(name):
            return empty(query, data, codes.SERVFAIL)
        if query.type == codes.ANY:
            record = Record(name, codes.HINFO, self._limits.hosts_ttl, (b"RFC8482", b""))
            return self._finish(query, data, Answer(records=(record,)), now, tcp, key)
        if (answer := self._own(name, query.type)) is not None:
            if answer.target is None or query.type == codes.CNAME:
                return self._finish(query, data, answer, now, tcp, key)
            return self._follow(query, data, answer, now, tcp, key)
        if not query.flags & codes.RD:
            return self._count(query, empty(query, data, codes.REFUSED), codes.REFUSED, OTHERS, now, tcp)
        cached = self._forwarder.cached(_key(query, name), now)
        if cached is None:
            return self._forwarded(query, data, now, tcp)
        self._metrics.cache_hits[names.DENIAL if cached.answer.negative else names.SUCCESS] += 1
        return self._relayed(query, data, cached, now, tcp, key)

    def _own(self, name: Name, type_: int) -> Answer | None:
        """Answers from the cluster or from `hosts`; None for names of others."""
        if (addresses := self._config.hosts.get(name)) is not None:
            family = {codes.A: 4, codes.AAAA: 6}.get(type_)
            chosen = [ip for ip in addresses if (6 if ":" in ip else 4) == family]
            return Answer(records=tuple(Record(name, type_, self._limits.hosts_ttl, ip) for ip in chosen))
        if self._zone.owns(name):
            return self._zone.answer(name, type_)
        if name[-1:] != (b"arpa",):
            return None
        address = reverse_address(name)
        if address is None:
            return None
        answer = self._zone.reverse(name)
        if answer is None and (target := self._config.host_names.get(address)) is not None:
            answer = Answer(records=(Record(name, codes.PTR, self._limits.hosts_ttl, target),))
        if answer is not None and type_ != codes.PTR:
            return Answer()
        return answer

    def _finish(self, query: Query, data: bytes, answer: Answer, now: float, tcp: int, key: bytes) -> bytes:
        """Encodes an answer of ours, in several orders if it has several addresses, and keeps it."""
        limit = limit_of(query, tcp=bool(tcp))
        authority = (self._zone.soa(),) if answer.negative else ()
        orders: list[Sequence[Record]] = [answer.records]
        aliases = [record for record in answer.records if record.type == codes.CNAME]
        others = [record for record in answer.records if record.type != codes.CNAME]
        if len(others) > 1:
            orders = [[*aliases, *random.sample(others, len(others))] for _ in range(_VARIANTS)]
        replies = [
            build(query, data, answer.rcode, records, authority, answer.additional, limit=limit) for records in orders
        ]
        zone = CLUSTER if self._zone.owns(query.name) else OTHERS
        if key:
            self._keep(key, replies, query, zone, now, now + self._limits.ttl, tcp, answer.rcode)
        return self._count(query, replies[0], answer.rcode, zone, now, tcp)

    def _follow(
        self, query: Query, data: bytes, answer: Answer, now: float, tcp: int, key: bytes
    ) -> Reply | Awaitable[Reply]:
        """Follows an alias as far as names are ours."""
        records, seen = list(answer.records), {query.name}
        while answer.target is not None:
            target = answer.target
            if target in seen or len(seen) > self._limits.cname_steps:
                return self._count(query, empty(query, data, codes.SERVFAIL), codes.SERVFAIL, CLUSTER, now, tcp)
            seen.add(target)
            found = self._own(target, query.type)
            if found is None:
                if not query.flags & codes.RD:
                    return self._finish(query, data, Answer(records=records), now, tcp, key)
                return self._followed(query, data, records, target, now, tcp)
            records += found.records
            answer = found
        return self._finish(query, data, Answer(answer.rcode, records, answer.additional), now, tcp, key)

    async def _followed(
        self, query: Query, data: bytes, records: list[Record], target: Name, now: float, tcp: int
    ) -> Reply:
        """Adds another server's records of the name that an alias stands for."""
        limit, rcode = limit_of(query, tcp=bool(tcp)), codes.SERVFAIL
        try:
            cached = await self._forwarder.ask(_key(query, target))
            answer, age = cached.answer, int(self._now() - cached.stored)
            rcode = answer.rcode
            # The library reads a message of its own: the answer with the question that it had.
            asked = b"".join(bytes((len(label),)) + label for label in target) + b"\0"
            asked += struct.pack("!HH", query.type, codes.IN)
            counts = struct.pack("!6H", 0, codes.QR, 1, answer.counts[0], 0, 0)
            records = records + records_of(counts + asked + answer.aged(age))
        except (Unreachable, ValueError) as error:
            _log.debug("cannot follow an alias", extra={"error": str(error)})
        reply = build(query, data, rcode & 0xF, records, authoritative=False, limit=limit)
        return self._count(query, reply, rcode, CLUSTER, now, tcp)

    async def _forwarded(self, query: Query, data: bytes, now: float, tcp: int) -> Reply:
        try:
            cached = await self._forwarder.ask(_key(query, query.name))
        except Unreachable as error:
            _log.debug("cannot forward a query", extra={"error": str(error)})
            return self._count(query, empty(query, data, codes.SERVFAIL), codes.SERVFAIL, OTHERS, now, tcp)
        limit, age = limit_of(query, tcp=bool(tcp)), int(self._now() - cached.stored)
        return self._count(query, relay(query, data, cached.answer, age, limit), cached.answer.rcode, OTHERS, now, tcp)

    def _relayed(self, query: Query, data: bytes, cached: Cached, now: float, tcp: int, key: bytes) -> bytes:
        """Answers from the cache, and keeps the encoded answer, whose TTLs go on counting down."""
        reply = relay(query, data, cached.answer, int(now - cached.stored), limit_of(query, tcp=bool(tcp)))
        rcode = cached.answer.rcode
        if key:
            entry = self._keep(key, [reply], query, OTHERS, now, cached.expires, tcp, rcode)
            entry.ttls = tuple((offset - query.end, ttl) for offset, ttl in ttl_offsets(reply, query.end))
        return self._count(query, reply, rcode, OTHERS, now, tcp)

    def _keep(
        self,
        key: bytes,
        replies: Sequence[bytes],
        query: Query,
        zone: str,
        now: float,
        expires: float,
        tcp: int,
        rcode: int,
    ) -> _Encoded:
        encoded = self._encoded[tcp]
        while len(encoded) >= self._limits.encoded_entries:
            del encoded[next(iter(encoded))]
        answered = self._metrics.answered("tcp" if tcp else "udp", zone, query.type, rcode)
        entry = encoded[key] = _Encoded(replies, query.end, answered, zone, now, expires)
        return entry

    def _count(self, query: Query, reply: bytes, rcode: int, zone: str, now: float, tcp: int) -> bytes:
        self._metrics.answered("tcp" if tcp else "udp", zone, query.type, rcode).count += 1
        self._metrics.duration[zone].observe(self._now() - now)
        return reply


def _objection(query: Query) -> int | None:
    """Returns the response code for a query that is well-formed and not answered."""
    if query.edns is not None and query.edns.version:
        return codes.BADVERS
    if query.type in _TRANSFERS or query.class_ != codes.IN:
        return codes.REFUSED
    return codes.NOTIMP if query.type in _META_TYPES else None


def _key(query: Query, name: Name) -> tuple[Name, int, bool]:
    return name, query.type, query.edns is not None and query.edns.dnssec_ok


async def settled(reply: Reply | Awaitable[Reply]) -> Reply:
    """Returns the answer, also where it has to be waited for."""
    return reply if reply is None or isinstance(reply, bytes) else await asyncio.ensure_future(reply)
