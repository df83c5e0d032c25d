"""A story while it happens: the kernel tells when there are new records, and each arrow is drawn as it comes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from pathlib import Path

from podwire.linux.inotify import CREATE, MODIFY, Inotify
from podwire.trace.mermaid import headline
from podwire.trace.participants import ORDER
from podwire.trace.segments import Reader
from podwire.trace.story import Arrow, Moment, Stories, Story, moments
from podwire.trace.text import Drawing


async def follow(directory: Path, namespace: str, name: str, width: int) -> AsyncGenerator[str, None]:
    """Lines until it is closed. The pod may not be there yet."""
    stories, reader, drawn = Stories(), Reader(directory), _Drawn(width)
    async with contextlib.aclosing(_changes(directory)) as changes:
        async for _ in changes:
            stories.learn(reader.more())
            if (story := stories.find(namespace, name)) is not None:
                for line in drawn.more(story):
                    yield line


async def _changes(directory: Path) -> AsyncGenerator[None, None]:
    """Once at the beginning, then whenever something was written."""
    inotify, woken = Inotify(), asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        inotify.add(directory, CREATE | MODIFY)
        loop.add_reader(inotify.fileno(), woken.set)
        while True:
            yield
            await woken.wait()
            woken.clear()
            inotify.read()
    finally:
        loop.remove_reader(inotify.fileno())
        inotify.close()


class _Drawn:
    """What of a story was drawn already. A younger pod of the same name begins anew."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._pod = ""
        self._told: set[Moment] = set()
        self._announced = False
        self._drawing = Drawing((), 0.0, width)

    def more(self, story: Story) -> Iterator[str]:
        if story.pod != self._pod:
            self._pod, self._told, self._announced = story.pod, set(), False
            self._drawing = Drawing(ORDER, story.origin, self._width)
            yield f"pod {story.namespace}/{story.name}"
            yield from self._drawing.head()
        for each in moments(story):
            key = _unfinished(each) if isinstance(each, Arrow) else each
            if key not in self._told:
                self._told.add(key)
                yield from self._drawing.lines(each)
        if story.running is not None and not self._announced:
            self._announced = True
            yield headline(story)


def _unfinished(arrow: Arrow) -> Arrow:
    """An arrow as it was before its call ended, so that it is drawn once."""
    return replace(arrow, took=None)
