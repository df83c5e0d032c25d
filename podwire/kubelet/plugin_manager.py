"""The registry of plugins: whoever puts a socket into a directory is asked who he is, and told whether he is taken.

A socket that goes takes its plugin with it; one that is made anew is a new announcement, though its name is the same.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from podwire.kubelet.ports import Peer, PluginSockets
from podwire.protocols.grpc_status import RpcError, Unavailable
from podwire.protocols.registration import methods
from podwire.protocols.registration import registration_pb2 as pb

log = logging.getLogger(__name__)

DIAL_SECONDS, INFO_SECONDS, NOTIFY_SECONDS = 10.0, 1.0, 5.0
"""How long a socket may be there before somebody listens on it; how long its owner may take to say who he is, and to
hear whether he was taken."""
DIAL_PAUSE = 0.02
RETRY_SECONDS = 0.5, 60.0
"""Until somebody who did not answer is asked again, first and at most."""


class Refused(Exception):
    """A plugin is not taken; the message is for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What a plugin says of itself."""

    type: str
    name: str
    endpoint: Path
    """Its own socket; the one by which it announced itself when it named none."""
    versions: tuple[str, ...]


class Handler(Protocol):
    """One kind of plugins."""

    async def register(self, plugin: Announced) -> None:
        """Take a plugin. Refused."""
        ...

    def deregister(self, plugin: Announced) -> None:
        """Its socket is gone, or it could not be told that it was taken."""
        ...


class _Socket(NamedTuple):
    """One that is made anew is another."""

    path: Path
    inode: int
    made: int


class PluginManager:
    """`handlers` are by type. `run` is the parent of all conversations with plugins."""

    def __init__(self, door: PluginSockets, directory: Path, handlers: Mapping[str, Handler]) -> None:
        self._door = door
        self._directory = directory
        self._handlers = handlers
        self._talks: dict[_Socket, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow the directory until cancelled."""
        await asyncio.to_thread(self._directory.mkdir, 0o750, parents=True, exist_ok=True)
        async with asyncio.TaskGroup() as group:
            async for _ in self._door.changes(self._directory):
                self._look(await asyncio.to_thread(_sockets, self._directory), group)

    def _look(self, found: set[_Socket], group: asyncio.TaskGroup) -> None:
        for each in self._talks.keys() - found:
            self._talks.pop(each).cancel()
        for each in sorted(found - self._talks.keys()):
            self._talks[each] = group.create_task(self._attend(each), name=f"plugin {each.path.name}")

    async def _attend(self, socket: _Socket) -> None:
        """Until the socket is gone, which cancels this."""
        pause, longest = RETRY_SECONDS
        taken: Announced | None = None
        try:
            while taken is None:
                try:
                    taken = await self._meet(socket)
                except RpcError as error:
                    log.info("plugin does not answer", extra={"socket": str(socket.path), "why": str(error)})
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, longest)
            await asyncio.Event().wait()
        finally:
            if taken is not None:
                self._handlers[taken.type].deregister(taken)

    async def _meet(self, socket: _Socket) -> Announced:
        """1. Who is it?  2. Is it taken?  3. Tell it. RpcError when it does not talk; waits for ever with a refused."""
        async with self._door.connect(socket.path) as peer:
            plugin = _announced(await _info(peer), socket.path)
            try:
                await self._take(plugin)
            except Refused as error:
                log.warning("plugin refused", extra={"socket": str(socket.path), "why": str(error)})
                await _notify(peer, str(error))
                await asyncio.Event().wait()
            try:
                await _notify(peer, "")
            except BaseException:
                self._handlers[plugin.type].deregister(plugin)
                raise
        log.info("plugin registered", extra={"type": plugin.type, "plugin": plugin.name, "socket": str(socket.path)})
        return plugin

    async def _take(self, plugin: Announced) -> None:
        handler = self._handlers.get(plugin.type)
        if handler is None:
            raise Refused(f"no handler registered for plugin type: {plugin.type}; there are {_listed(self._handlers)}")
        await handler.register(plugin)


async def _info(peer: Peer) -> pb.PluginInfo:
    """A socket appears a moment before anybody listens on it."""
    loop = asyncio.get_running_loop()
    until = loop.time() + DIAL_SECONDS
    while True:
        try:
            return await peer.call(methods.GET_INFO, pb.InfoRequest(), timeout=INFO_SECONDS)
        except Unavailable:
            if loop.time() > until:
                raise
            await asyncio.sleep(DIAL_PAUSE)


async def _notify(peer: Peer, error: str) -> None:
    status = pb.RegistrationStatus(plugin_registered=not error, error=error)
    await peer.call(methods.NOTIFY_REGISTRATION_STATUS, status, timeout=NOTIFY_SECONDS)


def _announced(info: pb.PluginInfo, socket: Path) -> Announced:
    return Announced(
        type=info.type,
        name=info.name,
        endpoint=Path(info.endpoint) if info.endpoint else socket,
        versions=tuple(info.supported_versions),
    )


def _sockets(directory: Path) -> set[_Socket]:
    """All below, but for what is hidden."""
    found = set()
    for above, directories, files in os.walk(directory):
        directories[:] = [each for each in directories if not each.startswith(".")]
        for name in files:
            path = Path(above, name)
            try:
                about = path.lstat()
            except OSError:
                continue
            if not name.startswith(".") and stat.S_ISSOCK(about.st_mode):
                found.add(_Socket(path, about.st_ino, about.st_ctime_ns))
    return found


def _listed(handlers: Mapping[str, Handler]) -> str:
    return ", ".join(sorted(handlers)) or "none"
