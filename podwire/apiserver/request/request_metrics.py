"""Metrics of requests, by upstream's names and labels.

Labels come from the server's own tables only: a path of which it knows nothing is counted without its parts.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from podwire.apiserver.flowcontrol.levels import Level
from podwire.apiserver.identity.authorization import Attributes
from podwire.interfaces import Clock
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.server_side import Answer, Request, Response
from podwire.protocols.prometheus import MOST_SERIES, Histogram, Labels, Metrics, family

COMPONENT = "apiserver"
BOUNDS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
)  # fmt: skip
SIZES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)
_LABELS = ("verb", "group", "version", "resource", "subresource", "scope", "component")
_VERBS = {verb: verb.upper() for verb in ("get", "list", "watch", "patch", "delete", "deletecollection")}
_VERBS |= {"create": "POST", "update": "PUT"}
_APPLY = "application/apply-patch"
_CONNECTING = frozenset({"exec", "attach", "portforward", "proxy"})
_READING = frozenset({"GET", "HEAD"})
_SIZED = frozenset({"GET", "LIST"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

Row = tuple[str, str, str, str, str, str]
"""Verb, group, version, resource, subresource and scope."""


class RequestMetrics:
    """Counts the requests of a server."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self.clock = clock
        self._requests = metrics.counter(
            "apiserver_request_total",
            "Requests by verb, resource, scope and HTTP code",
            "verb", "dry_run", *_LABELS[1:], "code",
        )  # fmt: skip
        self._durations = metrics.histograms(
            "apiserver_request_duration_seconds",
            "Time to answer, of requests that end",
            "verb", "dry_run", *_LABELS[1:],
            bounds=BOUNDS,
        )  # fmt: skip
        self._sizes = metrics.histograms(
            "apiserver_response_sizes", "Bytes of the answers to reads", *_LABELS, bounds=SIZES
        )
        self._long_running = metrics.gauge("apiserver_longrunning_requests", "Watches that are open", *_LABELS)
        self._objects = metrics.gauge("apiserver_resource_objects", "Stored objects by resource", "group", "resource")
        self._stored = metrics.gauge(
            "apiserver_storage_objects", "Stored objects by resource, by its old name", "resource"
        )
        self._series: dict[tuple[object, ...], _Series] = {}
        self.running = {"readOnly": 0, "mutating": 0}
        metrics.collect(self._in_flight)

    def _in_flight(self) -> Iterator[str]:
        rows: list[tuple[Labels, float]] = [((("request_kind", kind),), count) for kind, count in self.running.items()]
        return family("apiserver_current_inflight_requests", "Requests that are being answered", rows)

    def request(self, request: Request) -> "_Measured":
        return _Measured(self, request)

    def count(self, request: Request, attributes: Attributes | None, answer: Answer, began: float) -> None:
        """Counts an answer; one that is a watch or a connection has no duration yet."""
        # The key has all that the labels depend on: making them anew costs more than counting.
        key: tuple[object, ...]
        if attributes is None:
            key = (request.method,)
        else:
            key = (
                attributes.verb, attributes.group, attributes.version, attributes.resource, attributes.subresource,
                not attributes.name, not attributes.namespace, "dryRun" in request.query,
                request.headers.get("content-type") if attributes.verb == "patch" else None,
            )  # fmt: skip
        series = self._series.get(key) or self._added(key, request, attributes)
        if type(answer) is Response:
            status = answer.status
            if series.sizes is not None:
                series.sizes.observe(len(answer.body))
        else:
            status = getattr(answer, "status", 101)
        (series.codes.get(status) or self._added_code(series, status))[0] += 1
        if status != 101 and not series.watch:
            series.durations.observe(self.clock.monotonic() - began)

    def _added(self, key: tuple[object, ...], request: Request, attributes: Attributes | None) -> "_Series":
        if len(self._series) >= MOST_SERIES:  # content types of patches are the client's words
            self._series.clear()
        verb, *where = row = row_of(request, attributes)
        labels = (verb, "All" if "dryRun" in request.query else "", *where, COMPONENT)
        sizes = self._sizes.of(*row, COMPONENT) if verb in _SIZED else None
        series = _Series(labels, self._durations.of(*labels), sizes, {}, verb == "WATCH")
        self._series[key] = series
        return series

    def _added_code(self, series: "_Series", status: int) -> list[float]:
        cell = series.codes[status] = self._requests.cell(*series.labels, str(status))
        return cell

    def objects(self, kind: Kind, count: int) -> None:
        """Notes how many objects of a kind are stored."""
        self._objects.set(count, kind.group, kind.resource)
        self._stored.set(count, f"{kind.resource}.{kind.group}" if kind.group else kind.resource)

    def watch_began(self, request: Request, attributes: Attributes) -> Row:
        row = row_of(request, attributes)
        self._long_running.inc(*row, COMPONENT)
        return row

    def watch_ended(self, row: Row) -> None:
        self._long_running.inc(*row, COMPONENT, by=-1)


class _Series(NamedTuple):
    """The numbers of requests with the same labels."""

    labels: tuple[str, ...]
    durations: Histogram
    sizes: Histogram | None
    codes: dict[int, list[float]]
    watch: bool


class _Measured:
    """A request that is being answered; counted as running until the block ends, also by cancellation."""

    __slots__ = ("_began", "_kind", "_meter", "_request")

    def __init__(self, meter: RequestMetrics, request: Request) -> None:
        self._meter = meter
        self._request = request
        self._kind = "readOnly" if request.method in _READING else "mutating"

    def __enter__(self) -> Self:
        self._meter.running[self._kind] += 1
        self._began = self._meter.clock.monotonic()
        return self

    def __exit__(self, *_error: object) -> None:
        self._meter.running[self._kind] -= 1

    def answered(self, answer: Answer, attributes: Attributes | None) -> None:
        self._meter.count(self._request, attributes, answer, self._began)


def row_of(request: Request, attributes: Attributes | None) -> Row:
    """Returns the labels of a request. Pure."""
    if attributes is None or not attributes.resource:
        return request.method if request.method in _METHODS else "other", "", "", "", "", ""
    verb = attributes.verb
    subresource = attributes.subresource
    if subresource in _CONNECTING:
        shown = "CONNECT"
    elif verb == "patch" and request.headers.get("content-type", "").startswith(_APPLY):
        shown = "APPLY"
    else:
        shown = _VERBS.get(verb, "other")
    scope = "resource" if attributes.name or verb == "create" else "namespace" if attributes.namespace else "cluster"
    return shown, attributes.group, attributes.version, attributes.resource, subresource, scope


def level_lines(levels: Sequence[Level]) -> Iterator[str]:
    """Yields the metrics of priority levels, which count themselves."""
    for name, meaning, attribute in (
        ("apiserver_flowcontrol_current_executing_seats", "Seats that are taken", "running"),
        ("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for a seat", "waiting"),
        ("apiserver_flowcontrol_nominal_limit_seats", "Seats of a priority level", "seats"),
        ("apiserver_flowcontrol_rejected_requests_total", "Requests that were answered with 429", "rejected"),
    ):
        rows: list[tuple[Labels, float]] = [
            ((("priority_level", level.spec.name),), getattr(level, attribute)) for level in levels
        ]
        yield from family(name, meaning, rows)
