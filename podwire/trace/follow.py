"""Follows a pod trace while it grows: inotify reports new records, and each arrow is drawn as it arrives."""

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
    STORES,
    USER,
    in_order,
)
from podwire.trace.plain_text import plain
from podwire.trace.pod_trace import Arrow, Moment, PodTrace, PodTraces, moments
from podwire.trace.segments import Reader
from podwire.trace.text import Drawing
from podwire.trace.wording import headline

EXPECTED = frozenset({USER, KUBECTL, API_SERVER, SCHEDULER, KUBELET, RUNTIME, CNI_PLUGIN})
"""Participants that have a lane from the beginning; others get one when they appear, below a new header."""


async def follow(
    directory: Path, namespace: str, name: str, columns: int, *, colours: bool = False
) -> AsyncGenerator[str, None]:
    """Yields lines until closed, or until the directory is removed. The pod need not exist yet."""
    traces, reader, drawn = PodTraces(), Reader(directory), _Progress(columns, colours=colours)
    async with contextlib.aclosing(changes(directory)) as written:
        async for _ in written:
            traces.learn(reader.more())
            if (trace := traces.find(namespace, name)) is not None:
                for line in drawn.more(trace):
                    yield line


async def changes(directory: Path) -> AsyncGenerator[None, None]:
    """Yields once at the beginning, then after each write; ends with the directory."""
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


class _Progress:
    """Remembers which arrows were drawn. A newer pod of the same name starts from the beginning."""

    def __init__(self, columns: int, *, colours: bool) -> None:
        self._columns = columns
        self._colours = colours
        self._pod = ""
        self._drawn: set[Moment] = set()
        self._announced = False
        self._participants: set[str] = set()
        self._drawing = Drawing((), 0.0, columns)

    def more(self, trace: PodTrace) -> Iterator[str]:
        if trace.pod != self._pod:
            self._pod, self._drawn, self._announced, self._participants = trace.pod, set(), False, set()
            yield plain(f"pod {trace.namespace}/{trace.name}")
        for moment in moments(trace):
            # An arrow is drawn once: it is known by its form before its call ended.
            key = replace(moment, took=None) if isinstance(moment, Arrow) else moment
            if key not in self._drawn:
                self._drawn.add(key)
                yield from self._lanes(moment, trace)
                yield from self._drawing.lines(moment)
        if trace.running is not None and not self._announced:
            self._announced = True
            yield plain(headline(trace))

    def _lanes(self, moment: Moment, trace: PodTrace) -> list[str]:
        """Returns a new header when a participant appears that has no lane."""
        participants = (
            self._participants
            | EXPECTED
            | _stores(trace)
            | ({moment.caller, moment.callee} if isinstance(moment, Arrow) else set())
        )
        if participants == self._participants:
            return []
        self._participants = participants
        self._drawing = Drawing(in_order(participants), trace.origin, self._columns, colours=self._colours)
        return self._drawing.head()


def _stores(trace: PodTrace) -> set[str]:
    """Returns the store of this cluster, which has a lane as soon as it is known."""
    return {arrow.callee for arrow in trace.arrows if arrow.callee in STORES}
