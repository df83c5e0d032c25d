"""A plugin that records its calls, and can be made to wait and to fail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from podwire.nri import Plugin, run
from podwire.nri.plugin import METHODS
from podwire.protocols.nri.events import Event

PATIENCE = 30.0


class Recorder(Plugin):
    """Every hook goes through `happens`."""

    name, index = "recorder", "10"

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        """(hook, name of the pod or container)."""
        self.last_calls: dict[str, Any] = {}
        """The last pod and container of each hook."""
        self.known: list[str] = []
        """Names of pods and containers at Synchronize."""
        self.gates: dict[str, asyncio.Event] = {}
        self.entered: dict[str, asyncio.Event] = {}
        self.errors: dict[str, Exception] = {}
        self.answers: dict[str, Any] = {}
        self.syncs = 0

    async def synchronize(self, pods, containers):
        self.syncs += 1
        self.known = [pod.name for pod in (*pods, *containers)]
        await self._passed("Synchronize")

    async def happens(self, title: str, pod: Any, container: Any = None, *rest: Any) -> Any:
        self.seen.append((title, container.name if container is not None else pod.name))
        self.last_calls[title] = (pod, container, *rest)
        await self._passed(title)
        if title in self.errors:
            raise self.errors[title]
        return self.answers.get(title)

    async def _passed(self, title: str) -> None:
        if title in self.gates:
            self.entered[title].set()
            await self.gates[title].wait()

    def hold(self, title: str) -> None:
        """Let a hook wait until it is released."""
        self.gates[title], self.entered[title] = asyncio.Event(), asyncio.Event()

    async def held(self, title: str) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.entered[title].wait()

    def release(self, title: str) -> None:
        self.gates.pop(title).set()

    def of(self, name: str) -> list[str]:
        """The hooks about one pod or container, in their order."""
        return [title for title, each in self.seen if each == name]


def _hook(event: Event) -> Any:
    if event is Event.VALIDATE_CONTAINER_ADJUSTMENT:

        async def validate(self: Recorder, request: Any) -> Any:
            return await self.happens(event.title, request.pod, request.container)

        return validate

    async def hook(self: Recorder, *arguments: Any) -> Any:
        if event is Event.UPDATE_POD_SANDBOX:
            return await self.happens(event.title, arguments[0], None, *arguments[1:])
        return await self.happens(event.title, *arguments)

    return hook


for _event in Event:
    setattr(Recorder, METHODS[_event], _hook(_event))


@contextlib.asynccontextmanager
async def registered(plugin: Plugin, prefix: Path, *, ready: bool = True) -> AsyncIterator[asyncio.Task[None]]:
    """The plugin at a runtime, until the context ends."""
    task = asyncio.create_task(run(plugin, socket=prefix / "run/nri/nri.sock"))
    try:
        if ready:
            async with asyncio.timeout(PATIENCE):
                await plugin.ready.wait()
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(name="registered")
def _registered():
    return registered


@pytest.fixture(name="recorder")
def _recorder():
    """Makes plugins that remember: `recorder(index="20")`."""

    def made(**facts: str) -> Recorder:
        plugin = Recorder()
        for name, value in facts.items():
            setattr(plugin, name, value)
        return plugin

    return made
