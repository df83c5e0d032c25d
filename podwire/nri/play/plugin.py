"""The plugin's process: any program, started as an external or as a pre-installed plugin."""

import asyncio
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from podwire.linux.proc import processes
from podwire.protocols.nri.names import PluginId

SOCKET = "{socket}"
"""Replaced by the path of the socket in arguments."""
SOCKET_FILE = 3
"""The descriptor of the connection in a pre-installed plugin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    start: float = 15.0
    """Seconds in which a plugin's process connects; registration and Synchronize have limits of their own."""
    stop: float = 5.0
    """Seconds between SIGTERM and SIGKILL."""
    registrations: int = 5
    """Times that a plugin may register before it counts as refused."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """The command of a plugin and the way it is started."""

    argv: Sequence[str]
    launch: PluginId | None = None
    """As a pre-installed plugin of this name: a connected socket, three variables, nothing else."""
    output: int = 2
    """The descriptor for its output."""


class Process:
    """One run of the program."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], output: int, *more: int) -> None:
        """Raises OSError."""
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._child = processes.spawn(argv, env=env, files=(nothing, output, output, *more))
        finally:
            os.close(nothing)
        self.ended = asyncio.Event()
        self.code: int | None = None
        """Its exit code; the negative number of a signal that killed it."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._child.pidfd, self._reap)

    @property
    def pid(self) -> int:
        return self._child.pid

    def _reap(self) -> None:
        self._loop.remove_reader(self._child.pidfd)
        self.code = processes.reap(self._child)
        os.close(self._child.pidfd)
        self.ended.set()

    async def end(self, *, grace: float = 0.0) -> None:
        """Kills its process group, as runtimes do; with `grace` seconds, SIGTERM first."""
        if grace:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self.ended.wait()
        self._signal(signal.SIGKILL)
        await self.ended.wait()

    def _signal(self, number: int) -> None:
        if self.code is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)


def connecting(how: How, path: str) -> Process:
    """An external plugin: it finds the socket in NRI_SOCKET, or in an argument. Raises OSError."""
    argv = [argument.replace(SOCKET, path) for argument in how.argv]
    return Process(argv, {**os.environ, "NRI_SOCKET": path}, how.output)


def launched(how: How, plugin: PluginId) -> tuple[Process, socket.socket]:
    """A pre-installed plugin, and the runtime's end of its socket. Raises OSError."""
    ours, theirs = socket.socketpair()
    env = {
        "NRI_PLUGIN_NAME": plugin.name,
        "NRI_PLUGIN_IDX": plugin.index,
        "NRI_PLUGIN_SOCKET": str(SOCKET_FILE),
    }
    with theirs, ExitStack() as undo:
        undo.callback(ours.close)
        process = Process(how.argv, env, how.output, theirs.fileno())
        undo.pop_all()
    return process, ours
