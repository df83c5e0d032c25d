"""Tells when something comes to directories or goes from them: by inotify, or by looking when there is none left."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from podwire.linux.errors import LinuxError
from podwire.linux.fs import inotify

LOOK_SECONDS = 1.0
"""How often to look where the kernel does not tell."""
_MASK = inotify.CREATE | inotify.DELETE | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE_SELF

_log = logging.getLogger("podwire.deviceplugin")


async def changes(directories: Iterable[Path]) -> AsyncIterator[None]:
    """At the beginning, and whenever entries of these directories may have changed; missing ones are waited for."""
    wanted = tuple(dict.fromkeys(directories))
    try:
        notes = inotify.Inotify()
    except LinuxError as error:
        async for _ in _looking(error):
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
    async for _ in _looking(failed):
        yield


def _watch(notes: inotify.Inotify, wanted: Iterable[Path]) -> LinuxError | None:
    try:
        for each in wanted:
            notes.add_nearest(each, _MASK)
    except LinuxError as error:
        return error
    return None


async def _looking(why: LinuxError) -> AsyncIterator[None]:
    _log.warning("the kernel tells no changes of files, so they are looked for", extra={"why": str(why)})
    while True:
        yield
        await asyncio.sleep(LOOK_SECONDS)
