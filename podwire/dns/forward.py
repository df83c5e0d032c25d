"""Asks other servers, and caches what they answer.

Servers are asked in their order, those that failed lately last. Equal queries wait for one answer. Each query has a
random id and, by its transport, a random port; an answer must echo both and the question.

A server that sends our queries back to us (a loop) would multiply them. Each server is therefore asked once for a
random name; when that name comes in as a query, the server is no longer asked until the configuration changes.
"""

import asyncio
import logging
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from podwire.dns import metrics as names
from podwire.dns.config import Upstream
from podwire.dns.limits import Limits
from podwire.dns.metrics import Metrics
from podwire.dns.ports import Exchange
from podwire.interfaces import Clock
from podwire.protocols.dns.answers import question
from podwire.protocols.dns.codes import HINFO, IN, NOTIMP, REFUSED, SERVFAIL
from podwire.protocols.dns.queries import Name
from podwire.protocols.dns.relay import Relayed, Unusable, is_truncated, matches, rcode_of, read_relayed
from podwire.tasks.uncancelled import Uncancelled

_log = logging.getLogger("podwire.dns")

Key = tuple[Name, int, bool]
"""Name, type, and whether DNSSEC records are wanted."""
PROBE_DOMAIN: Name = (b"loop-probe", b"podwire")
_ASK_ANOTHER = (SERVFAIL, REFUSED, NOTIMP)


class Unreachable(Exception):
    """No server answered."""


@dataclass(slots=True)
class _Health:
    failures: int = 0
    down_until: float = 0.0
    looping: bool = False


@dataclass(frozen=True, slots=True)
class Cached:
    answer: Relayed
    stored: float
    expires: float


class Forwarder:
    def __init__(self, exchange: Exchange, clock: Clock, metrics: Metrics, limits: Limits) -> None:
        self._exchange = exchange
        self._clock = clock
        self._metrics = metrics
        self._limits = limits
        self._upstreams: tuple[Upstream, ...] = ()
        self._stubs: Mapping[Name, tuple[Upstream, ...]] = {}
        self._health: dict[Upstream, _Health] = {}
        self._probes: dict[Name, Upstream] = {}
        self._unprobed: dict[Upstream, None] = {}
        self._changed = asyncio.Event()
        self._cache: dict[Key, Cached] = {}
        self._asked: dict[Key, asyncio.Task[Cached]] = {}
        self._work = Uncancelled()
        metrics.gauges[names.ENTRIES] = lambda: len(self._cache)

    def configure(self, upstreams: Iterable[Upstream], stubs: Mapping[Name, tuple[Upstream, ...]]) -> None:
        """Replaces the servers; what others answered is forgotten."""
        self._upstreams, self._stubs = tuple(upstreams), dict(stubs)
        servers = dict.fromkeys((*self._upstreams, *(row for rows in self._stubs.values() for row in rows)))
        self._health = {server: _Health() for server in servers}
        self._cache.clear()
        self._probes.clear()
        self._unprobed = servers
        self._changed.set()

    async def run(self) -> None:
        """Probes new servers for loops, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._unprobed:
                server = next(iter(self._unprobed))
                del self._unprobed[server]
                name = (secrets.token_hex(16).encode(), *PROBE_DOMAIN)
                self._probes[name] = server
                message = question(secrets.randbits(16), name, HINFO)
                try:
                    await self._exchange.udp(server.host, server.port, message, self._limits.attempt, lambda _: True)
                except (OSError, TimeoutError) as error:
                    _log.debug("upstream did not answer a probe", extra={"server": str(server), "error": str(error)})

    def note_probe(self, name: Name) -> bool:
        """Whether an incoming query is our own; its server is then not asked any more."""
        if len(name) != len(PROBE_DOMAIN) + 1 or name[1:] != PROBE_DOMAIN:
            return False
        server = self._probes.pop(name, None)
        if server is not None and server in self._health:
            self._health[server].looping = True
            self._metrics.counts[names.LOOPS] += 1
            _log.error("upstream sends queries back to this server; not asked any more", extra={"server": str(server)})
        return True

    def cached(self, key: Key, now: float) -> Cached | None:
        entry = self._cache.get(key)
        if entry is None:
            return None
        if now >= entry.expires:
            del self._cache[key]
            return None
        return entry

    async def ask(self, key: Key) -> Cached:
        """Returns the answer, which may be cached or shared with an equal query. Raises Unreachable."""
        if (entry := self.cached(key, self._clock.monotonic())) is not None:
            return entry
        task = self._asked.get(key)
        if task is None:
            if len(self._asked) >= self._limits.forwarded_queries:
                self._metrics.counts[names.REJECTED] += 1
                raise Unreachable("too many queries wait for other servers")
            task = self._asked[key] = self._work.start(self._ask(key))
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        else:
            self._metrics.counts[names.COALESCED] += 1
        return await self._work.result(task)

    async def close(self) -> None:
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def servers_for(self, name: Name) -> list[Upstream]:
        """Returns the servers of the longest stub domain above a name, or the default ones, in the order of asking."""
        servers = self._upstreams
        for length in range(len(name), 0, -1):
            if (stub := self._stubs.get(name[len(name) - length :])) is not None:
                servers = stub
                break
        now = self._clock.monotonic()
        usable = [server for server in servers if not self._health[server].looping]
        return sorted(usable, key=lambda server: self._health[server].down_until > now)

    async def _ask(self, key: Key) -> Cached:
        name, _, _ = key
        self._metrics.counts[names.MISSES] += 1
        last: Cached | None = None
        reason = "no server is configured"
        try:
            async with asyncio.timeout(self._limits.patience):
                for server in self.servers_for(name) * 2:
                    try:
                        answer = await self._attempt(server, key)
                    except (OSError, TimeoutError, Unusable) as error:
                        reason = f"{server}: {error or type(error).__name__}"
                        self._failed(server)
                        continue
                    self._worked(server)
                    if answer.answer.rcode not in _ASK_ANOTHER:
                        self._keep(key, answer)
                        return answer
                    last = answer
        except TimeoutError:
            pass
        if last is None:
            raise Unreachable(reason)
        return last

    async def _attempt(self, server: Upstream, key: Key) -> Cached:
        name, type_, dnssec_ok = key
        limits, begun = self._limits, self._clock.monotonic()
        message = question(secrets.randbits(16), name, type_, IN, dnssec_ok=dnssec_ok)
        data = await self._exchange.udp(
            server.host, server.port, message, limits.attempt, lambda data: matches(message, data)
        )
        if is_truncated(data):
            data = await self._exchange.tcp(server.host, server.port, message, limits.attempt)
            if not matches(message, data):
                raise Unusable("an answer to another question")
        now = self._clock.monotonic()
        self._metrics.observe_upstream(str(server), now - begun)
        end = message.index(0, 12) + 5
        answer = read_relayed(data, end, longest=limits.cache_ttl, longest_negative=limits.negative_cache_ttl)
        if rcode_of(data) == SERVFAIL:
            self._metrics.broken[str(server)] += 1
        return Cached(answer, now, now + answer.lifetime)

    def _keep(self, key: Key, entry: Cached) -> None:
        if entry.answer.lifetime <= 0:
            return
        while len(self._cache) >= self._limits.cache_entries:
            del self._cache[next(iter(self._cache))]
        self._cache[key] = entry

    def _failed(self, server: Upstream) -> None:
        self._metrics.broken[str(server)] += 1
        if (health := self._health.get(server)) is None:
            return
        health.failures += 1
        if health.failures == self._limits.failures:
            _log.warning("upstream does not answer", extra={"server": str(server)})
        if health.failures >= self._limits.failures:
            health.down_until = self._clock.monotonic() + self._limits.down

    def _worked(self, server: Upstream) -> None:
        if (health := self._health.get(server)) is None:
            return
        if health.failures >= self._limits.failures:
            _log.info("upstream answers again", extra={"server": str(server)})
        health.failures, health.down_until = 0, 0.0
