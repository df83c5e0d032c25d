"""Follows one prefix of the store: the present objects first, then every change; lists again when the log is gone."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from podwire.apiserver.ports import Store
from podwire.protocols.storage import Change, Gone, Item, SlowWatcher, StorageError

_log = logging.getLogger("podwire.apiserver.informer")

RETRY = 1.0
"""Seconds until a store that returned an error is listed again."""


async def follow(
    store: Store,
    prefix: str,
    on_list: Callable[[list[Item]], Awaitable[None]],
    on_change: Callable[[Change], Awaitable[None]],
    *,
    retry: float = RETRY,
) -> None:
    """Call `on_list` with everything under a prefix, then `on_change` for each change, until cancelled.

    Lists again (and calls `on_list` again) when the watch cannot be resumed: compacted, cut for slowness, or failed.
    """
    while True:
        try:
            page = await store.list(prefix)
            await on_list(list(page.items))
            with contextlib.closing(store.watch(prefix, after=page.revision)) as watch:
                while True:
                    for change in await watch.next():
                        await on_change(change)
                        await asyncio.sleep(0)  # requests go on between two changes of large objects
        except (Gone, SlowWatcher):
            continue
        except StorageError as error:
            _log.warning("cannot watch the store", extra={"prefix": prefix, "error": str(error)})
            await asyncio.sleep(retry)
