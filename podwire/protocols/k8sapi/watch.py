"""Watching, without a wire: frames from bytes, what a change means for a copy, and where to go on after an end.

    Frames    bytes, cut anywhere, to whole frames          read_frame   a frame to its type and object
    Copy      frames and listings to changes of a local copy: nothing missed, nothing reported twice
    Course    list, watch, resume, relist, wait: the next step after whatever happened

Nothing here knows a clock, a socket or an event loop.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

Object = dict[str, Any]

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"

MAX_FRAME = 16 * 1024 * 1024

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation on the bookmark that ends the initial state of a WatchList."""


class BadFrame(Exception):
    """Not a watch frame: the peer is not an API server, or the stream was cut within a frame."""


class Frame(msgspec.Struct, frozen=True):
    """`{"type": …, "object": …}`"""

    type: str
    object: Object


_decode_frame = msgspec.json.Decoder(Frame).decode


def read_frame(frame: bytes) -> Frame:
    try:
        return _decode_frame(frame)
    except msgspec.MsgspecError as error:
        raise BadFrame(f"not a watch frame: {error}") from error


class Frames:
    """Cuts a stream of bytes into frames, one a line, wherever the bytes were cut on their way."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The frames that this chunk completes."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._grow(end)
            frame = b"".join(self._begun)
            self._begun, self._size = [], 0
            if frame.strip():
                yield frame
        if rest:
            self._grow(rest)

    def _grow(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            raise BadFrame(f"a watch frame is larger than {self._limit} bytes")
        self._begun.append(part)


@dataclass(frozen=True, slots=True)
class Added:
    object: Object


@dataclass(frozen=True, slots=True)
class Updated:
    object: Object
    previous: Object


@dataclass(frozen=True, slots=True)
class Deleted:
    """`object` is the last known state: the final one when the deletion itself was seen."""

    object: Object


@dataclass(frozen=True, slots=True)
class Synced:
    """The copy is complete: sent once, after the first listing."""


Change = Added | Updated | Deleted | Synced


def metadata(object_: Mapping[str, Any]) -> dict[str, Any]:
    found = object_.get("metadata")
    return found if isinstance(found, dict) else {}


def key_of(object_: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name."""
    meta = metadata(object_)
    return meta.get("namespace", ""), meta.get("name", "")


def version_of(object_: Mapping[str, Any]) -> str:
    version: str = metadata(object_).get("resourceVersion", "")
    return version


def _same(one: Object, other: Object, name: str) -> bool:
    return bool(metadata(one).get(name) == metadata(other).get(name))


class Copy:
    """The objects of one kind as last seen, by namespace and name."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}

    def replace(self, items: Iterable[Object]) -> list[Change]:
        """A fresh listing: what it changes, with deletions that no watch has reported."""
        listed = {key_of(item): item for item in items}
        changes: list[Change] = [Deleted(object_) for key, object_ in self.objects.items() if key not in listed]
        for object_ in listed.values():
            changes += self._seen(object_)
        self.objects = listed
        return changes

    def apply(self, frame: Frame) -> list[Change]:
        """An event of a watch."""
        if frame.type in (ADDED, MODIFIED):
            changes = self._seen(frame.object)
            self.objects[key_of(frame.object)] = frame.object
            return changes
        if frame.type == DELETED and self.objects.pop(key_of(frame.object), None) is not None:
            return [Deleted(frame.object)]
        return []

    def _seen(self, object_: Object) -> list[Change]:
        before = self.objects.get(key_of(object_))
        if before is None:
            return [Added(object_)]
        if not _same(before, object_, "uid"):
            return [Deleted(before), Added(object_)]  # replaced while nobody looked
        return [] if _same(before, object_, "resourceVersion") else [Updated(object_, before)]


@dataclass(frozen=True, slots=True)
class List:
    """List everything, after waiting so many seconds."""

    wait: float


@dataclass(frozen=True, slots=True)
class WatchFrom:
    """Watch from this resourceVersion on, after waiting so many seconds."""

    resource_version: str
    wait: float


Step = List | WatchFrom

FIRST_WAIT, LONGEST_WAIT = 0.1, 10.0

HEALTHY = 1.0
"""A watch that lasted so long was served, even if nothing happened."""

GONE = 410
NO_SENSE = frozenset({400, 404, 405, 406, 415, 422})
"""Refusals that asking again does not change."""


@dataclass(slots=True)
class Course:
    """Where a client that wants to know everything goes next.

    A watch that ends is resumed at once where it got to; one that ends without having brought anything, and every
    failure, waits: 0.1 s, doubled up to 10 s, half of it at random so that many clients do not come back in step.
    A version that the server no longer keeps means a fresh listing.
    """

    chance: Callable[[], float]
    """A random number from 0 to 1."""
    _version: str = ""
    _failures: int = 0
    _wait: float = 0.0
    _progress: bool = False

    def next(self) -> Step:
        self._progress = False
        return WatchFrom(self._version, self._wait) if self._version else List(self._wait)

    def listed(self, resource_version: str) -> None:
        self._version, self._wait = resource_version, 0.0

    def moved(self, resource_version: str) -> None:
        """An event or bookmark came: the watch may be resumed from there, and the server is well."""
        if resource_version:
            self._version = resource_version
        self._progress, self._failures, self._wait = True, 0, 0.0

    def ended(self, lasted: float) -> None:
        """The watch ended, cleanly or not, after so many seconds."""
        if self._progress or lasted >= HEALTHY:
            self._failures, self._wait = 0, 0.0
        else:
            self._back_off()

    def failed(self, code: int = 0, retry_after: float = 0.0) -> None:
        """A listing or watch was refused with this HTTP code, or (0) got no answer."""
        if code == GONE:
            self._version = ""
        self._back_off()
        relist_at_once = code == GONE and self._failures == 1
        self._wait = 0.0 if relist_at_once else max(self._wait, retry_after)

    def _back_off(self) -> None:
        self._failures += 1
        most = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(self._failures - 1, 16))
        self._wait = most * (0.5 + self.chance() / 2)
