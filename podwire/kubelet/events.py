"""Tells people what happens to pods and nodes: Events, sent in the background and thinned out where they repeat."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from podwire.kubelet.ports import Api
from podwire.objects.pods import Pod
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object
from podwire.seams import Clock

_log = logging.getLogger("podwire.kubelet.events")

NORMAL, WARNING = "Normal", "Warning"

MESSAGE_BYTES = 1024
LONGEST_OBJECT_NAME = 253 - len(".") - len(f"{2**63:x}")
"""Characters of an object's name in the name of an event about it."""

BURST, REFILL_SECONDS = 25, 300.0
"""Events about one object: that many at once, then one in so many seconds."""

REMEMBERED = 4096
"""Objects, and different things told about them, that are kept in mind; the longest unheard are forgotten."""

QUEUED = 1000
AWAY_SECONDS = 120.0
"""An event that could not be sent for so long is dropped: newer ones matter more."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
MANNERS = 0.2
"""Seconds between the first of several events and their sending: a pod's start is not slowed by what is told of it."""

_CUT = "..."


_EVENTS = Kind(group="", version="v1", resource="events", kind="Event")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The object that an event is about."""

    kind: str
    name: str
    api_version: str = "v1"
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @classmethod
    def to(cls, pod: Pod) -> "Reference":
        meta = pod.metadata
        return cls(
            kind="Pod",
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )

    @property
    def identity(self) -> tuple[str, ...]:
        """What makes it the same object, whatever its version."""
        return (self.api_version, self.kind, self.namespace, self.name, self.uid)


@dataclass(slots=True, kw_only=True)
class _Told:
    """One event, however often it was told."""

    about: Reference
    field_path: str
    type: str
    reason: str
    message: str
    first: float
    last: float
    count: int = 0
    name: str = ""
    sent: bool = False
    """Whether the API has an event of this name."""
    waiting_since: float | None = None
    """Monotonic; None when the API has heard of the latest."""


@dataclass(slots=True)
class _Bucket:
    """Tokens that come back with time."""

    tokens: float
    at: float

    def take(self, now: float) -> bool:
        self.tokens = min(BURST, self.tokens + (now - self.at) / REFILL_SECONDS)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


Value = TypeVar("Value")


class _Recent(Generic[Value]):
    """The values of the keys that were asked for lately."""

    def __init__(self) -> None:
        self._values: OrderedDict[tuple[str, ...], Value] = OrderedDict()

    def get(self, key: tuple[str, ...], make: Callable[[], Value]) -> Value:
        if key not in self._values:
            self._values[key] = make()
            if len(self._values) > REMEMBERED:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return self._values[key]


class Recorder:
    """Never waits and never fails its caller. What is told again is counted in the event that was sent already."""

    def __init__(self, api: Api, clock: Clock, *, component: str, host: str = "") -> None:
        self._api = api
        self._clock = clock
        self._component = component
        self._host = host
        self._told: _Recent[_Told] = _Recent()
        self._buckets: _Recent[_Bucket] = _Recent()
        self._queue: deque[_Told] = deque()
        self._filled = asyncio.Event()
        self._dropped = 0
        self._last_stamp = 0

    def tell(self, about: Pod | Reference, type_: str, reason: str, message: str, *, field_path: str = "") -> None:
        """Say that this happened now; `field_path` as in `spec.containers{app}`."""
        reference = Reference.to(about) if isinstance(about, Pod) else about
        message, wall, now = _short(message), self._clock.wall(), self._clock.monotonic()
        told = self._told.get(
            (*reference.identity, field_path, type_, reason, message),
            lambda: _Told(
                about=reference,
                field_path=field_path,
                type=type_,
                reason=reason,
                message=message,
                first=wall,
                last=wall,
            ),
        )
        told.count += 1
        told.last = wall
        # Counted even when it is not sent, so that the next one that is tells the truth.
        if self._buckets.get(reference.identity, lambda: _Bucket(BURST, now)).take(now):
            self._enqueue(told, now)

    async def run(self) -> None:
        """Send what is told, one after another, until cancelled."""
        while True:
            while self._queue:
                await self._deliver(self._queue.popleft())
            if self._dropped:
                _log.warning("events were dropped, too many at once", extra={"count": self._dropped})
                self._dropped = 0
            self._filled.clear()
            await self._filled.wait()
            await asyncio.sleep(MANNERS)

    def _enqueue(self, told: _Told, now: float) -> None:
        if told.waiting_since is not None:
            return  # it is in line already and will be sent as it is by then
        if len(self._queue) >= QUEUED:
            self._dropped += 1
            return
        told.waiting_since = now
        self._queue.append(told)
        self._filled.set()

    async def _deliver(self, told: _Told) -> None:
        """Send one event, again and again while the API is away."""
        since = told.waiting_since if told.waiting_since is not None else self._clock.monotonic()
        pause = FIRST_PAUSE
        while self._clock.monotonic() - since < AWAY_SECONDS:
            told.waiting_since = None  # told once more from here on, it is sent once more
            try:
                await self._send(told)
            except (ApiError, ClientError) as error:
                if isinstance(error, ApiError) and not _passing(error):
                    _log.info("event refused", extra={"about": told.about.name, "why": str(error)})
                    return
                told.waiting_since = since
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            except Exception:  # noqa: BLE001 - a fault in one event must not silence all others
                _log.exception("event not sent", extra={"about": told.about.name})
                return
            else:
                return
        told.waiting_since = None
        _log.warning("event dropped, the API is away", extra={"about": told.about.name, "reason": told.reason})

    async def _send(self, told: _Told) -> None:
        if told.sent and await self._repeat(told):
            return
        told.name = told.name or self._new_name(told.about.name)
        try:
            await self._api.create(self._event(told))
        except ApiError as error:
            if error.code != 409:  # an earlier try arrived after all
                raise
        told.sent = True

    async def _repeat(self, told: _Told) -> bool:
        """Whether the event was there to be counted up."""
        patch = {"count": told.count, "lastTimestamp": rfc3339(told.last)}
        try:
            await self._api.patch(_EVENTS, told.name, patch, told.about.namespace or "default")
        except ApiError as error:
            if error.code != 404:  # events are forgotten after an hour
                raise
            told.name, told.sent, told.count, told.first = "", False, 1, told.last
            return False
        return True

    def _new_name(self, about: str) -> str:
        """NAME.HEX: the nanosecond, never the same twice."""
        self._last_stamp = max(self._last_stamp + 1, int(self._clock.wall() * 1e9))
        return f"{about[:LONGEST_OBJECT_NAME].rstrip('-.')}.{self._last_stamp:x}"

    def _event(self, told: _Told) -> Object:
        about = {
            "apiVersion": told.about.api_version,
            "kind": told.about.kind,
            "name": told.about.name,
            "namespace": told.about.namespace,
            "uid": told.about.uid,
            "resourceVersion": told.about.resource_version,
            "fieldPath": told.field_path,
        }
        source = {"component": self._component, "host": self._host}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": told.name, "namespace": told.about.namespace or "default"},
            "involvedObject": {key: value for key, value in about.items() if value},
            "reason": told.reason,
            "message": told.message,
            "source": {key: value for key, value in source.items() if value},
            "firstTimestamp": rfc3339(told.first),
            "lastTimestamp": rfc3339(told.last),
            "count": told.count,
            "type": told.type,
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }


def _passing(error: ApiError) -> bool:
    """Whether the same request may be welcome later."""
    return error.code == 429 or error.code >= 500


def _short(message: str) -> str:
    data = message.encode("utf-8", "replace")
    if len(data) <= MESSAGE_BYTES:
        return data.decode()
    return data[: MESSAGE_BYTES - len(_CUT)].decode("utf-8", "ignore") + _CUT
