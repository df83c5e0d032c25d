"""Reports changes of directories: by inotify, or by polling when the kernel has no more watches."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from podwire.linux.errors import LinuxError
from podwire.linux.fs import inotify

_MASK = inotify.CREATE | inotify.DELETE | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE_SELF

_log = logging.getLogger("podwire.deviceplugin")


async def changes(directories: Iterable[Path], poll: float) -> AsyncIterator[None]:
    """Yields at once, and whenever entries of these directories may have changed; missing ones are waited for.

    Without inotify it yields every `poll` seconds.
    """
    watched = tuple(dict.fromkeys(directories))
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        with contextlib.ExitStack() as stack:
            watch = stack.enter_context(contextlib.closing(inotify.Inotify()))
            loop.add_reader(watch.fileno(), changed.set)
            stack.callback(loop.remove_reader, watch.fileno())
            while True:
                for directory in watched:
                    watch.add_nearest(directory, _MASK)
                yield
                await changed.wait()
                changed.clear()
                watch.read()
    except LinuxError as error:
        _log.warning("cannot use inotify; polling directories", extra={"error": str(error)})
    while True:
        yield
        await asyncio.sleep(poll)
