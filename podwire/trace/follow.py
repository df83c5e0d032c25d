"""A story while it happens: the kernel tells when there are new records, and each arrow is drawn as it comes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from pathlib import Path

from podwire.linux.fs.inotify import CREATE, DELETE_SELF, GONE, MODIFY, MOVE_SELF, Inotify
from podwire.trace.participants import (
    API_SERVER,
    CNI_PLUGIN,
    KUBECTL,
    KUBELET,
    RUNTIME,
    SCHEDULER,
    STORE,
    USER,
    placed,
)
from podwire.trace.plain_text import plain
from podwire.trace.pod_trace import Arrow, Moment, PodTrace, PodTraces, moments
from podwire.trace.segments import Reader
from podwire.trace.text import Drawing
from podwire.trace.wording import headline

EXPECTED = frozenset({USER, KUBECTL, API_SERVER, STORE, SCHEDULER, KUBELET, RUNTIME, CNI_PLUGIN})
"""Who has a lane from the beginning; others get theirs when they come, below a new head."""


async def follow(
    directory: Path, namespace: str, name: str, columns: int, *, colours: bool = False
) -> AsyncGenerator[str, None]:
    """Lines until it is closed, or the directory is gone. The pod may not be there yet."""
    traces, reader, drawn = PodTraces(), Reader(directory), _Drawn(columns, colours=colours)
    async with contextlib.aclosing(_changes(directory)) as changes:
        async for _ in changes:
            traces.learn(reader.more())
            if (trace := traces.find(namespace, name)) is not None:
                for line in drawn.more(trace):
                    yield line


async def _changes(directory: Path) -> AsyncGenerator[None, None]:
    """Once at the beginning, then whenever something was written; ends with the directory."""
    inotify, woken = Inotify(), asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        inotify.add(directory, CREATE | MODIFY | DELETE_SELF | MOVE_SELF)
        loop.add_reader(inotify.fileno(), woken.set)
        while True:
            yield
            await woken.wait()
            woken.clear()
            if any(event.mask & (GONE | DELETE_SELF | MOVE_SELF) for event in inotify.read()):
                return
    finally:
        loop.remove_reader(inotify.fileno())
        inotify.close()


class _Drawn:
    """What of a story was drawn already. A younger pod of the same name begins anew."""

    def __init__(self, columns: int, *, colours: bool) -> None:
        self._columns = columns
        self._colours = colours
        self._pod = ""
        self._told: set[Moment] = set()
        self._announced = False
        self._people: set[str] = set()
        self._drawing = Drawing((), 0.0, columns)

    def more(self, trace: PodTrace) -> Iterator[str]:
        if trace.pod != self._pod:
            self._pod, self._told, self._announced, self._people = trace.pod, set(), False, set()
            yield plain(f"pod {trace.namespace}/{trace.name}")
        for moment in moments(trace):
            key = _unfinished(moment) if isinstance(moment, Arrow) else moment
            if key not in self._told:
                self._told.add(key)
                yield from self._lanes(moment, trace)
                yield from self._drawing.lines(moment)
        if trace.running is not None and not self._announced:
            self._announced = True
            yield plain(headline(trace))

    def _lanes(self, told: Moment, trace: PodTrace) -> list[str]:
        """A new head when somebody comes who has no lane."""
        people = self._people | EXPECTED | ({told.caller, told.callee} if isinstance(told, Arrow) else set())
        if people == self._people:
            return []
        self._people = people
        self._drawing = Drawing(placed(people), trace.origin, self._columns, colours=self._colours)
        return self._drawing.head()


def _unfinished(arrow: Arrow) -> Arrow:
    """An arrow as it was before its call ended, so that it is drawn once."""
    return replace(arrow, took=None)
