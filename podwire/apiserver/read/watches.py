"""watch: the initial state if requested, then every change as frames, with bookmarks, until the watch's end.

A frame's bytes are encoded once per change and shared by all watchers with the same form. How a watch ends:

| end | the client sees | it resumes by |
|---|---|---|
| timeoutSeconds, or a random lifetime | a bookmark, then the end of the stream | its last resourceVersion |
| too slow: the store cut it (SlowWatcher) | the end of the stream | its last resourceVersion |
| its revision was compacted (Gone) | an ERROR frame, 410 Expired | a new list |
| the store failed | an ERROR frame, 500 | its last resourceVersion |
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from podwire.apiserver.limits import Limits
from podwire.apiserver.ports import Store
from podwire.apiserver.read import selection as select
from podwire.apiserver.read.lists import key_of_name, present, wait_for_revision
from podwire.apiserver.read.selection import Selection
from podwire.apiserver.request import offload
from podwire.apiserver.request.call import Call, boolean_option, integer_option, revision_option
from podwire.apiserver.request.encodings import WATCH_MEDIA, encode_frame
from podwire.apiserver.request.negotiation import Encoding, Form, Shown
from podwire.apiserver.request.response import Renderer
from podwire.interfaces import Clock
from podwire.kinds import stored
from podwire.kinds.resource import Resource
from podwire.protocols.k8sapi.server_side import Request, Stream
from podwire.protocols.k8sapi.status import ApiError, Reason, forbidden, invalid_object, not_supported
from podwire.protocols.storage import Change, Gone, Item, SlowWatcher, StorageError, Watch
from podwire.tasks.slices import in_slices

_log = logging.getLogger("podwire.apiserver.read.watches")

CHUNK = 256 * 1024
"""Bytes of frames that are sent together; also the most that a slow reader of a large collection holds in memory."""

FEW = 16
"""Changes that are sent as one chunk, whatever their size."""

Queued = TypeVar("Queued")

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of a watch request."""

    selection: Selection
    after: int | None
    """Changes after this revision; None means the current one."""
    initial: bool
    """The current objects come first."""
    initial_bookmark: bool
    """A bookmark marks the end of the initial state."""
    bookmarks: bool
    lifetime: float


def watch_options(request: Request, resource: Resource, limits: Limits) -> WatchOptions:
    """Reads and checks the options of a watch."""
    revision = revision_option(request)
    _check(request)
    asked = "sendInitialEvents" in request.query
    initial = boolean_option(request, "sendInitialEvents") if asked else not revision
    seconds = integer_option(request, "timeoutSeconds")
    integer_option(request, "limit")
    return WatchOptions(
        selection=select.of(request, resource),
        after=None if initial else revision or None,
        initial=initial,
        initial_bookmark=asked and initial and boolean_option(request, "allowWatchBookmarks"),
        bookmarks=boolean_option(request, "allowWatchBookmarks"),
        lifetime=float(seconds) if seconds and seconds > 0 else random.uniform(*limits.watch_lifetime),
    )


def _check(request: Request) -> None:
    match, asked, errors = request.option("resourceVersionMatch"), "sendInitialEvents" in request.query, []
    if asked and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        errors.append(forbidden("resourceVersionMatch", why))
    if match and not asked:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors.append(forbidden("resourceVersionMatch", why))
    if match not in ("", "NotOlderThan"):
        errors.append(not_supported("resourceVersionMatch", match, ["NotOlderThan"]))
    if match and request.option("continue"):
        errors.append(forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided"))
    if errors:
        raise invalid_object("ListOptions", "", errors, group="meta.k8s.io")


async def watch(store: Store, call: Call, clock: Clock, limits: Limits) -> Stream:
    """Returns the answer to a watch request."""
    options = watch_options(call.request, call.resource, limits)
    if options.initial and (revision := revision_option(call.request)):
        await wait_for_revision(store, revision, limits)
    frames = _Frames(call.resource, call.form, call.request, clock)
    chunks = _with_error_frame(_chunks(store, call, options, frames, clock, limits), frames)
    return Stream(chunks=chunks, content_type=WATCH_MEDIA[call.form.encoding])


async def _with_error_frame(chunks: AsyncGenerator[bytes, None], frames: "_Frames") -> AsyncIterator[bytes]:
    """Yields the chunks, and an ERROR frame when the watch ended abnormally."""
    try:
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                yield chunk
    except SlowWatcher:
        return  # the client resumes from its last revision
    except Gone as error:
        yield frames.error(gone(error))
    except StorageError as error:
        yield frames.error(ApiError(Reason.INTERNAL_ERROR, f"the watch was ended by the store: {error}"))
    except ApiError as error:
        yield frames.error(error)
    except Exception:  # noqa: BLE001 - the client gets a Status, the log gets the details
        _log.exception("watch handler failed")
        yield frames.error(ApiError(Reason.INTERNAL_ERROR, "Internal error occurred; the server's log has the details"))


async def _chunks(
    store: Store, call: Call, options: WatchOptions, frames: "_Frames", clock: Clock, limits: Limits
) -> AsyncGenerator[bytes, None]:
    """Yields 1. the initial state, if requested, 2. changes and bookmarks until the lifetime is over."""
    after = store.revision if options.after is None else options.after
    if options.initial:
        items, after = await present(store, call, options.selection)
        call.initialized()
        items.reverse()
        async for chunk in _chunked(_popped(items), frames.added):
            yield chunk
        if options.initial_bookmark:
            yield frames.bookmark(after, initial_end=True)
    call.initialized()
    with contextlib.closing(_subscribe(store, call, options.selection, after)) as subscription:
        async with contextlib.aclosing(_live(subscription, options, frames, clock, limits)) as live:
            async for chunk in live:
                yield chunk


def _subscribe(store: Store, call: Call, selection: Selection, after: int) -> Watch:
    """Watches the one key that a selection by name can match, else the changes that meet one of its conditions."""
    if one := key_of_name(call, selection):
        return store.watch(one, after=after)
    return store.watch(call.resource.scope(call.namespace), after=after, trigger=selection.trigger)


async def _live(
    subscription: Watch, options: WatchOptions, frames: "_Frames", clock: Clock, limits: Limits
) -> AsyncGenerator[bytes, None]:
    """Yields changes, and bookmarks when they are due, however busy the resource is: a selective watcher may see
    nothing else."""
    begun = clock.monotonic()
    end = begun + options.lifetime
    last = end - min(limits.bookmark_before_end, options.lifetime / 2)
    due = min(begun + limits.bookmark_every, last) if options.bookmarks else end
    while (now := clock.monotonic()) < end:
        if now >= due:
            yield frames.bookmark(subscription.revision)
            due = min(now + limits.bookmark_every, last) if now < last else end
            continue
        if not (changes := subscription.drain()):
            try:
                async with asyncio.timeout(due - now):
                    changes = await subscription.next()
            except TimeoutError:
                continue
        if len(changes) <= FEW:
            chunk = b"".join([await frames.change(change, options.selection) for change in changes])
            changes = []
            if chunk:
                yield chunk
            continue
        changes.reverse()
        async for chunk in _chunked(_popped(changes), lambda change: frames.change(change, options.selection)):
            yield chunk


def _popped(queue: list[Queued]) -> Iterator[Queued]:
    """Yields the last one first, and lets go of each: what a client has been sent is not kept until the rest is."""
    while queue:
        yield queue.pop()


async def _chunked(queue: Iterable[Queued], render: Callable[[Queued], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    """Joins frames into chunks; no more is prepared than the client reads. Yields to other tasks between chunks."""
    ready: list[bytes] = []
    size = 0
    async for queued in in_slices(queue):
        frame = await render(queued)
        ready.append(frame)
        size += len(frame)
        if size >= CHUNK:
            yield b"".join(ready)
            ready, size = [], 0
            await asyncio.sleep(0)
    if size:
        yield b"".join(ready)


def gone(error: Gone) -> ApiError:
    return ApiError(Reason.EXPIRED, str(error))


class _Frames:
    """Watch frames of one resource in one form."""

    def __init__(self, resource: Resource, form: Form, request: Request, clock: Clock) -> None:
        self._resource = resource
        self._form = form
        self._first_table = True
        renderer = Renderer(resource, form, request, 0)  # also for tables: a bad option is refused before the stream
        self._render: Callable[[Item], bytes] = (
            self._table(request, clock) if form.shown is Shown.TABLE else renderer.one
        )
        self._notes: dict[str, str] = {}
        """Names under which watches with the same form share the frames of a change; a table's rows tell the time."""
        if form.shown is not Shown.TABLE:
            shared = f"{resource.served_head.decode()} {form.shown.value} {form.version} {form.encoding.value}"
            self._notes = {kind: f"{kind} {shared}" for kind in ("ADDED", "MODIFIED", "DELETED")}

    async def added(self, item: Item) -> bytes:
        return await self._write(item, lambda: self._event("ADDED", item))

    async def change(self, change: Change, selection: Selection) -> bytes:
        """Returns the frame of a change; empty when the watcher does not select it."""
        kind = select.transition(change, selection)
        if not kind:
            return b""

        def write() -> bytes:
            if not self._notes:
                return self._event(kind, _shown(change, kind))
            return change.derived(self._notes[kind], lambda: self._event(kind, _shown(change, kind)))

        if self._form.encoding is Encoding.JSON:  # one call less for the most frequent case
            return write()
        return await self._write(_shown(change, kind), write)

    async def _write(self, item: Item, write: Callable[[], bytes]) -> bytes:
        """Large objects are written in protobuf and CBOR by the worker, one after the other, so that the next watcher
        finds the frame of the first."""
        return write() if self._form.encoding is Encoding.JSON else await offload.encode(len(item.value), write)

    def _event(self, kind: str, item: Item) -> bytes:
        return self._encoded(b'{"type":"%b","object":%b}\n' % (kind.encode(), self._render(item)))

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        kind = self._resource.kind
        names = {
            Shown.OBJECT: (kind.kind, kind.api_version),
            Shown.METADATA: ("PartialObjectMetadata", f"meta.k8s.io/{self._form.version}"),
            Shown.TABLE: ("Table", f"meta.k8s.io/{self._form.version}"),
        }
        name, api_version = names[self._form.shown]
        obj: dict[str, object] = {"kind": name, "apiVersion": api_version, "metadata": metadata}
        if self._form.shown is Shown.TABLE:
            row = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
            obj = {**obj, "metadata": {"resourceVersion": str(revision)}, "columnDefinitions": None}
            obj["rows"] = [{"cells": [""] * len(self._resource.columns()), "object": row}]
        return self._encoded(b'{"type":"BOOKMARK","object":%b}\n' % stored.encode(obj))

    def error(self, error: ApiError) -> bytes:
        return self._encoded(b'{"type":"ERROR","object":%b}\n' % stored.encode(error.status()))

    def _encoded(self, line: bytes) -> bytes:
        return encode_frame(line, self._form.encoding)

    def _table(self, request: Request, clock: Clock) -> Callable[[Item], bytes]:
        def render(item: Item) -> bytes:
            columns, self._first_table = self._first_table, False
            renderer = Renderer(self._resource, self._form, request, clock.wall())
            return renderer.table([item], b'{"resourceVersion":"%d"}' % item.revision, columns=columns)

        return render


def _shown(change: Change, kind: str) -> Item:
    """Returns the shown object: the current one, or the last one with the change's revision when it is no longer
    selected."""
    if kind != "DELETED" and change.item is not None:
        return change.item
    last = change.previous
    if last is None:
        raise ValueError(f"change {change.revision} of {change.key} has neither an item nor a previous one")
    return Item(last.key, last.value, change.revision, last.created)
