"""Reports changes of directories: by inotify, or by polling when the kernel has no more watches."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from podwire.linux.errors import LinuxError
from podwire.linux.fs import inotify

POLL_SECONDS = 1.0
"""The polling interval without inotify."""
_MASK = inotify.CREATE | inotify.DELETE | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE_SELF

_log = logging.getLogger("podwire.deviceplugin")


async def changes(directories: Iterable[Path]) -> AsyncIterator[None]:
    """Yields at once, and whenever entries of these directories may have changed; missing ones are waited for."""
    wanted = tuple(dict.fromkeys(directories))
    try:
        notes = inotify.Inotify()
    except LinuxError as error:
        async for _ in _poll(error):
            yield
        return
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    failed: LinuxError | None = None
    with contextlib.closing(notes):
        loop.add_reader(notes.fileno(), told.set)
        try:
            while failed is None:
                failed = _watch(notes, wanted)
                yield
                if failed is None:
                    await told.wait()
                told.clear()
                notes.read()
        finally:
            loop.remove_reader(notes.fileno())
    async for _ in _poll(failed):
        yield


def _watch(notes: inotify.Inotify, wanted: Iterable[Path]) -> LinuxError | None:
    try:
        for directory in wanted:
            notes.add_nearest(directory, _MASK)
    except LinuxError as error:
        return error
    return None


async def _poll(error: LinuxError) -> AsyncIterator[None]:
    _log.warning("cannot use inotify; polling directories", extra={"error": str(error)})
    while True:
        yield
        await asyncio.sleep(POLL_SECONDS)
