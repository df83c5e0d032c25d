"""A local copy of the objects of one kind that keeps itself up to date."""

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol, Self

from podwire.protocols.k8sapi.client_side.http import ClientError
from podwire.protocols.k8sapi.client_side.watching import Watching
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import (
    BOOKMARK,
    ERROR,
    INITIAL_EVENTS_END,
    NO_SENSE,
    BadFrame,
    Change,
    Copy,
    Course,
    Frame,
    List,
    Object,
    Synced,
    Updated,
    metadata,
    version_of,
)

log = logging.getLogger(__name__)

WATCH_SECONDS = (300, 600)
"""How long one watch request is asked to last: random, so that many do not end together."""

GRACE_SECONDS = 15.0
"""After so much more, a watch that has not ended is taken for dead."""


class Source(Protocol):
    """Where listings and watches of the wanted objects come from."""

    async def list(self) -> tuple[Sequence[Object], str]:
        """All objects and the resourceVersion that the listing is good for."""
        ...

    async def watch(self, resource_version: str, *, seconds: int, initial: bool) -> Watching:
        """Changes after a version; with `initial`, first the present state up to a bookmark that says so."""
        ...


class Informer:
    """`async for change in informer`: Added, Updated, Deleted, and Synced once the copy is complete.

    Ends never; lists again and resumes by itself, and tells what it missed meanwhile as changes. Raises ApiError only
    for a refusal that asking again would not change (no such kind, a selector that cannot be read).

    With `resync`, every so many seconds after Synced all objects are sent once more as Updated, equal to their previous
    state: a consumer that failed to act on a change gets another chance. The copy itself needs no resync.
    """

    def __init__(self, source: Source, about: str, *, watch_list: bool = False, resync: float = 0.0) -> None:
        self._source = source
        self._resync = resync
        self._resync_at = math.inf
        self._reading: asyncio.Task[Frame | None] | None = None
        self._about = about
        self._watch_list = watch_list
        self._course = Course(random.random)
        self._copy = Copy()
        self._ready: deque[Change] = deque()
        self._watching: Watching | None = None
        self._until = 0.0
        self._since = 0.0
        self._initial: list[Object] | None = None
        self._synced = False

    @property
    def objects(self) -> Mapping[tuple[str, str], Object]:
        """The copy by namespace and name; as new as the last change received, perhaps newer than the last change that
        was yielded."""
        return self._copy.objects

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        while not self._ready:
            try:
                await (self._begin() if self._watching is None else self._receive(self._watching))
            except ApiError as error:
                self._refused(error)
            except (ClientError, BadFrame) as error:
                log.debug("watch connection was interrupted", extra={"watch": self._about, "error": str(error)})
                self._failed(0)
        return self._ready.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        if self._reading is not None:
            self._reading.cancel()
        if self._watching is not None:
            self._watching.close()
        self._watching = self._initial = self._reading = None

    async def _begin(self) -> None:
        step = self._course.next()
        if step.wait:
            await asyncio.sleep(step.wait)
        if not isinstance(step, List):
            await self._open(step.resource_version)
        elif self._watch_list:
            await self._open("")
            self._initial = []
        else:
            items, version = await self._source.list()
            self._replace(items, version)

    async def _open(self, version: str) -> None:
        loop = asyncio.get_running_loop()
        seconds = random.randint(*WATCH_SECONDS)
        self._since = loop.time()
        self._until = self._since + seconds + GRACE_SECONDS
        self._watching = await self._source.watch(version, seconds=seconds, initial=not version)

    async def _receive(self, watching: Watching) -> None:
        try:
            async with asyncio.timeout_at(self._until):
                frame = await (self._frame_or_resync(watching) if self._resync else anext(watching))
        except (StopAsyncIteration, TimeoutError):
            self.close()
            self._course.ended(asyncio.get_running_loop().time() - self._since)
            return
        if frame is not None:
            self._take(frame)

    async def _frame_or_resync(self, watching: Watching) -> Frame | None:
        """Returns None when it is time to resync. The read goes on in its task meanwhile: cancelled, it hangs up."""
        loop = asyncio.get_running_loop()
        if self._reading is None:
            self._reading = asyncio.create_task(_next(watching))
        seconds = max(0.0, self._resync_at - loop.time())
        done, _ = await asyncio.wait({self._reading}, timeout=seconds if math.isfinite(seconds) else None)
        if done:
            reading, self._reading = self._reading, None
            frame = reading.result()
            if frame is None:
                raise StopAsyncIteration
            return frame
        self._resync_at = loop.time() + self._resync
        self._ready.extend(Updated(object_, object_) for object_ in self._copy.objects.values())
        return None

    def _take(self, frame: Frame) -> None:
        if frame.type == ERROR:
            raise ApiError.from_status(frame.object)
        if self._initial is not None:
            self._collect(self._initial, frame)
            return
        if frame.type != BOOKMARK:
            self._ready.extend(self._copy.apply(frame))
        self._course.moved(version_of(frame.object))

    def _collect(self, initial: list[Object], frame: Frame) -> None:
        """The initial state of a WatchList comes as events; its last is a bookmark that says so."""
        if frame.type != BOOKMARK:
            initial.append(frame.object)
        elif INITIAL_EVENTS_END in metadata(frame.object).get("annotations", {}):
            self._initial = None
            self._replace(initial, version_of(frame.object))

    def _replace(self, items: Sequence[Object], version: str) -> None:
        self._ready.extend(self._copy.replace(items))
        if not self._synced:
            self._ready.append(Synced())
            self._synced = True
            if self._resync:
                self._resync_at = asyncio.get_running_loop().time() + self._resync
        self._course.listed(version)

    def _refused(self, error: ApiError) -> None:
        if self._initial is None and self._watch_list and error.code == 422:
            self._watch_list = False  # a server without WatchList says so in this way
            self._failed(0)
        elif error.code in NO_SENSE:
            self.close()
            raise error
        else:
            log.info(
                "API server rejected watch", extra={"watch": self._about, "code": error.code, "why": error.message}
            )
            self._failed(error.code, _retry_after(error))

    def _failed(self, code: int, retry_after: float = 0.0) -> None:
        self.close()
        self._course.failed(code, retry_after)


async def _next(watching: Watching) -> Frame | None:
    """Returns None at the end: a task cannot raise StopAsyncIteration."""
    return await anext(watching, None)


def _retry_after(error: ApiError) -> float:
    retry_after = dict(error.headers).get("Retry-After", "")
    return float(retry_after) if retry_after.isdecimal() else 0.0
