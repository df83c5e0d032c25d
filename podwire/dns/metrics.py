"""Counters of the DNS server, under the names of CoreDNS where it has them."""

from collections import Counter
from collections.abc import Callable, Iterator

from podwire.protocols.dns.codes import RCODE_NAMES, TYPE_NAMES
from podwire.protocols.prometheus import Histogram, Labels, family, timings

BOUNDS = (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096)
"""Seconds, as CoreDNS has them."""
SUCCESS, DENIAL = "success", "denial"


class Answered:
    """How many queries of one kind had one response code."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Metrics:
    def __init__(self, server: str) -> None:
        self._server = server
        self._answered: dict[tuple[str, str, int, int], Answered] = {}
        self.duration = {"cluster": Histogram(BOUNDS), ".": Histogram(BOUNDS)}
        self.upstream: dict[str, Histogram] = {}
        self.cache_hits: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self.gauges: dict[str, Callable[[], float]] = {}

    def answered(self, protocol: str, zone: str, type_: int, rcode: int) -> Answered:
        key = protocol, zone, type_ if type_ in TYPE_NAMES else 0, rcode
        if key not in self._answered:
            self._answered[key] = Answered()
        return self._answered[key]

    def observe_upstream(self, server: str, seconds: float) -> None:
        if server not in self.upstream and len(self.upstream) >= 100:
            return
        self.upstream.setdefault(server, Histogram(BOUNDS)).observe(seconds)

    def text(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        rows = [(key, row.count) for key, row in self._answered.items() if row.count]
        requests: Counter[Labels] = Counter()
        responses: Counter[Labels] = Counter()
        for (protocol, zone, type_, rcode), count in rows:
            both: Labels = (("server", self._server), ("zone", zone), ("proto", protocol))
            requests[(*both, ("type", TYPE_NAMES.get(type_, "other")))] += count
            responses[(*both, ("rcode", RCODE_NAMES.get(rcode, str(rcode))))] += count
        yield from family("coredns_dns_requests_total", "Queries by zone, protocol and type.", requests.items())
        yield from family("coredns_dns_responses_total", "Answers by zone and response code.", responses.items())
        yield from timings(
            "coredns_dns_request_duration_seconds", "Time until a query was answered.", "zone", self.duration
        )
        hits = [((("server", self._server), ("type", type_)), count) for type_, count in self.cache_hits.items()]
        yield from family("coredns_cache_hits_total", "Answers from the cache.", hits)
        for name, meaning in _COUNTS.items():
            yield from family(name, meaning, [((), self.counts[name])])
        for name, value in self.gauges.items():
            yield from family(name, _GAUGES[name], [((), value())])
        yield from timings(
            "coredns_proxy_request_duration_seconds", "Time until another server answered.", "to", self.upstream
        )
        broken = [((("to", server),), count) for server, count in self.broken.items()]
        yield from family("coredns_proxy_healthcheck_failures_total", "Failures of other servers.", broken)


MISSES, REJECTED, BAD_CONFIG, PANICS = (
    "coredns_cache_misses_total",
    "coredns_forward_max_concurrent_rejects_total",
    "coredns_reload_failed_total",
    "coredns_panics_total",
)
MALFORMED, LIMITED, LOOPS, COALESCED = (
    "podwire_dns_malformed_total",
    "podwire_dns_rate_limited_total",
    "podwire_dns_forwarding_loops_total",
    "podwire_dns_coalesced_queries_total",
)
_COUNTS = {
    MISSES: "Queries that the cache could not answer.",
    REJECTED: "Queries refused because too many waited for other servers.",
    BAD_CONFIG: "Versions of the ConfigMap with an error.",
    PANICS: "Queries whose handling failed unexpectedly.",
    MALFORMED: "Packets that are not a query.",
    LIMITED: "Answers that were empty because the client received too many bytes.",
    LOOPS: "Servers that were found to send our queries back to us.",
    COALESCED: "Queries that waited for the answer to an equal one.",
}
ENTRIES, ENCODED = "coredns_cache_entries", "podwire_dns_encoded_answers"
_GAUGES = {ENTRIES: "Answers of other servers in the cache.", ENCODED: "Answers that are kept as bytes."}
