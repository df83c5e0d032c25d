"""The plugin manager: finds registration sockets of plugins in a directory and registers each with its type's handler.

A plugin is deregistered when its socket is removed; a socket that is created again, under the same name or another, is
a new registration.
"""

import asyncio
import contextlib
import logging
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from podwire.kubelet.ports import Peer, PluginSockets
from podwire.linux.fs.trees import directories_below
from podwire.protocols.grpc_status import RpcError, Unavailable
from podwire.protocols.registration import methods
from podwire.protocols.registration import registration_pb2 as pb
from podwire.tasks.backoff import Pauses
from podwire.tasks.retry import retry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginLimits:
    """Timeouts and pauses in seconds."""

    dial: float = 10.0
    """Until a plugin listens on the socket that it has created."""
    dial_pause: float = 0.02
    info: float = 1.0
    """For GetInfo."""
    notify: float = 5.0
    """For NotifyRegistrationStatus."""
    backoff: tuple[float, float] = (0.5, 60.0)
    """First and longest pause until a plugin that did not answer is asked again."""


class Refused(Exception):
    """A plugin is not registered; the message is sent to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """A plugin as GetInfo describes it."""

    type: str
    name: str
    endpoint: Path
    """The socket of its service; the registration socket if it names none."""
    versions: tuple[str, ...]


class Handler(Protocol):
    """Handles plugins of one type."""

    async def register(self, plugin: Announced) -> None:
        """Raises Refused."""
        ...

    def deregister(self, plugin: Announced) -> None:
        """Its socket is removed, or it could not be notified of its registration."""
        ...


class _Socket(NamedTuple):
    """A socket that was created again is another one."""

    path: Path
    inode: int
    made: int


class PluginManager:
    """`handlers` are by plugin type. `run` is the parent of all registrations."""

    def __init__(
        self, sockets: PluginSockets, directory: Path, handlers: Mapping[str, Handler], limits: PluginLimits
    ) -> None:
        self._sockets = sockets
        self._directory = directory
        self._handlers = handlers
        self._limits = limits
        self._registrations: dict[_Socket, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow the directory until cancelled."""
        await asyncio.to_thread(self._directory.mkdir, 0o750, parents=True, exist_ok=True)
        async with asyncio.TaskGroup() as group:
            async for _ in self._sockets.changes(self._directory):
                self._update(await asyncio.to_thread(_list_sockets, self._directory), group)

    def _update(self, sockets: set[_Socket], group: asyncio.TaskGroup) -> None:
        for socket in self._registrations.keys() - sockets:
            self._registrations.pop(socket).cancel()
        for socket in sorted(sockets - self._registrations.keys()):
            task = group.create_task(self._run_plugin(socket), name=f"plugin {socket.path.name}")
            self._registrations[socket] = task

    async def _run_plugin(self, socket: _Socket) -> None:
        """Runs until the socket is removed, which cancels it."""

        def on_failure(error: BaseException, _pause: float) -> None:
            log.info("plugin does not answer", extra={"socket": str(socket.path), "error": str(error)})

        pauses = Pauses(*self._limits.backoff)
        plugin = await retry(lambda: self._register(socket), pauses, RpcError, on_failure=on_failure)
        try:
            await asyncio.Event().wait()
        finally:
            self._handlers[plugin.type].deregister(plugin)

    async def _register(self, socket: _Socket) -> Announced:
        """1. GetInfo.  2. The handler of its type.  3. NotifyRegistrationStatus. Raises RpcError if the plugin does not
        answer; does not return for a plugin that was refused: it must create its socket again."""
        async with self._sockets.connect(socket.path) as peer:
            plugin = _announced(await self._info(peer), socket.path)
            handler = self._handlers.get(plugin.type)
            try:
                if handler is None:
                    known = ", ".join(sorted(self._handlers)) or "none"
                    raise Refused(f"no handler registered for plugin type: {plugin.type}; there are {known}")
                await handler.register(plugin)
            except Refused as error:
                log.warning("refused plugin registration", extra={"socket": str(socket.path), "error": str(error)})
                await self._notify(peer, str(error))
                await asyncio.Event().wait()
                raise
            with contextlib.ExitStack() as undo:
                undo.callback(handler.deregister, plugin)
                await self._notify(peer, "")
                undo.pop_all()
        log.info(
            "registered kubelet plugin", extra={"type": plugin.type, "plugin": plugin.name, "socket": str(socket.path)}
        )
        return plugin

    async def _info(self, peer: Peer) -> pb.PluginInfo:
        """A socket is created a moment before its plugin listens on it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._limits.dial
        while True:
            try:
                return await peer.call(methods.GET_INFO, pb.InfoRequest(), timeout=self._limits.info)
            except Unavailable:
                if loop.time() > until:
                    raise
                await asyncio.sleep(self._limits.dial_pause)

    async def _notify(self, peer: Peer, error: str) -> None:
        status = pb.RegistrationStatus(plugin_registered=not error, error=error)
        await peer.call(methods.NOTIFY_REGISTRATION_STATUS, status, timeout=self._limits.notify)


def _announced(info: pb.PluginInfo, socket: Path) -> Announced:
    return Announced(
        type=info.type,
        name=info.name,
        endpoint=Path(info.endpoint) if info.endpoint else socket,
        versions=tuple(info.supported_versions),
    )


def _list_sockets(directory: Path) -> set[_Socket]:
    """All sockets below a directory, except hidden ones."""
    sockets = set()
    for parent in directories_below(directory, hidden=False):
        with contextlib.suppress(OSError):  # it was removed meanwhile, which is a change, too
            for path in Path(parent).iterdir():
                with contextlib.suppress(OSError):
                    status = path.lstat()
                    if not path.name.startswith(".") and stat.S_ISSOCK(status.st_mode):
                        sockets.add(_Socket(path, status.st_ino, status.st_ctime_ns))
    return sockets
