"""Follows one kind of objects: lists it in pages and watches it, without a copy of its own.

The callee keeps what it needs. When a list begins anew, objects that are missing from it are reported by their keys.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar

import msgspec

from podwire.protocols.k8sapi.client_side import Client, ClientError, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import BOOKMARK, DELETED, ERROR, NO_SENSE, BadFrame, Course, List, version_of
from podwire.proxy.values import Name

_log = logging.getLogger("podwire.proxy")

PAGE = 1000
WATCH_SECONDS = (300, 600)
GRACE_SECONDS = 15.0
GONE = 410


class Item(Protocol):
    """An object of the API."""

    @property
    def key(self) -> Name: ...


T = TypeVar("T", bound=Item)
Page = Callable[[bytes], tuple[list[T], str, str]]
"""Returns the objects of a page, the token of the next one, and the resourceVersion."""


class Follower(Generic[T]):
    """`put` receives each object, `delete` the key of each that is gone, `listed` is called after each list."""

    def __init__(
        self,
        api: Client,
        kind: Kind,
        scope: Scope,
        read: Page[T],
        items: type[T],
        *,
        put: Callable[[T], None],
        delete: Callable[[Name], None],
        known: Callable[[], Collection[Name]],
        listed: Callable[[], None],
    ) -> None:
        self._api, self._kind, self._scope = api, kind, scope
        self._read, self._item = read, items
        self._put, self._delete, self._known, self._listed = put, delete, known, listed
        self._course = Course(random.random)

    async def run(self) -> None:
        """Follows until cancelled. Raises ApiError for a refusal that asking again would not change."""
        while True:
            step = self._course.next()
            await asyncio.sleep(step.wait)
            try:
                if isinstance(step, List):
                    await self._list()
                else:
                    await self._watch(step.resource_version)
            except ApiError as error:
                if error.code in NO_SENSE:
                    raise
                _log.info(
                    "API server rejected watch of proxy", extra={"kind": self._kind.resource, "error": error.message}
                )
                self._course.failed(error.code)
            except (ClientError, BadFrame, msgspec.MsgspecError) as error:
                _log.debug("watch of proxy was interrupted", extra={"kind": self._kind.resource, "error": str(error)})
                self._course.failed(0)

    async def _list(self) -> None:
        missing = set(self._known())
        token = version = ""
        while True:
            page = await self._api.page(self._kind, self._scope, limit=PAGE, token=token)
            items, token, version = self._read(page)
            for item in items:
                missing.discard(item.key)
                self._put(item)
            if not token:
                break
        for key in missing:
            self._delete(key)
        self._listed()
        self._course.listed(version)

    async def _watch(self, version: str) -> None:
        loop = asyncio.get_running_loop()
        seconds = random.randint(*WATCH_SECONDS)
        began = loop.time()
        watching = await self._api.watch(self._kind, self._scope, resource_version=version, seconds=seconds)
        try:
            async with asyncio.timeout(seconds + GRACE_SECONDS):
                async for frame in watching:
                    if frame.type == ERROR:
                        raise ApiError.from_status(frame.object)
                    if frame.type != BOOKMARK:
                        item = msgspec.convert(frame.object, self._item)
                        if frame.type == DELETED:
                            self._delete(item.key)
                        else:
                            self._put(item)
                    self._course.moved(version_of(frame.object))
        except TimeoutError:
            pass
        finally:
            watching.close()
        self._course.ended(loop.time() - began)
