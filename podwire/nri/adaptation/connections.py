"""Where plugins come in: a socket that only its owner can reach, and the pre-installed plugins that the host starts.

A connection has one task from its beginning to its end; whatever is wrong with it ends that connection only.
"""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from podwire.nri.adaptation.connected_plugin import ConnectedPlugin
from podwire.nri.adaptation.ports import ContainerUpdater
from podwire.nri.adaptation.preinstalled import PreinstalledPlugin, configuration_of, find
from podwire.nri.adaptation.preinstalled_process import launched
from podwire.nri.adaptation.registration import PluginConnection, Registrar, RegistrationFailed, titles
from podwire.nri.adaptation.settings import Settings
from podwire.transports import unix_sockets

log = logging.getLogger(__name__)

_QUEUE = 128
"""Connections that may wait to be accepted."""
_BACK_OFF = (0.5, 10.0)
"""Seconds before a required plugin is started again, the first time and at most."""


class Connections:
    """Lets plugins in while it is open."""

    def __init__(
        self,
        settings: Settings,
        node: ContainerUpdater,
        admission: Registrar,
        lose: Callable[[ConnectedPlugin, str], None],
        registered: Callable[[ConnectedPlugin], None],
    ) -> None:
        self._settings = settings
        self._node = node
        self._admission = admission
        self._lose = lose
        self._registered = registered
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Until left; then nobody new comes, and who is there is closed and, if the host started it, killed."""
        try:
            async with AsyncExitStack() as stack:
                if self._settings.socket is not None:
                    await stack.enter_async_context(self._listening(self._settings.socket))
                await self._start_installed()
                yield
        finally:
            tasks = tuple(self._tasks)
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The socket.

    @asynccontextmanager
    async def _listening(self, path: Path) -> AsyncIterator[None]:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

        def bind(fresh: str) -> None:
            listener.bind(fresh)
            listener.listen(_QUEUE)

        try:
            place = await unix_sockets.bind_socket(path, bind)
        except BaseException:
            listener.close()
            raise
        server = await asyncio.get_running_loop().create_unix_server(self._guest, sock=listener)
        try:
            yield
        finally:
            server.close()
            await unix_sockets.remove_socket(place)

    def _guest(self) -> PluginConnection:
        return PluginConnection(self._node, self._arrived)

    def _arrived(self, guest: PluginConnection) -> None:
        if guest.peer_uid not in (0, os.geteuid()):
            log.warning("a stranger is turned away", extra={"uid": guest.peer_uid, "pid": guest.peer_pid})
            guest.abort(f"user {guest.peer_uid} may not be a plugin")
            return
        self._begin(f"NRI connection of process {guest.peer_pid}", self._attend(guest))

    async def _attend(
        self, guest: PluginConnection, config: str = "", active: Callable[[], None] = lambda: None
    ) -> None:
        """One connection, from its registration to its end."""
        peer, why = None, "given up"
        try:
            peer = await self._admission.register(guest, config)
            await self._admission.synchronize(peer)
            log.info(
                "a plugin is active",
                extra={"plugin": str(peer.id), "pid": guest.pid, "events": titles(peer.events)},
            )
            self._registered(peer)
            active()
            why = await asyncio.shield(guest.closed)
        except RegistrationFailed as error:
            why = str(error)
            log.warning("a connection is no plugin", extra={"pid": guest.pid, "reason": why})
        except Exception as error:
            why = f"the host failed: {error}"
            log.exception("a connection is given up", extra={"pid": guest.pid})
        except asyncio.CancelledError:
            why = "the runtime stops"
            raise
        finally:
            if peer is not None:
                self._lose(peer, why)
            await guest.close(why)
            if peer is not None:
                await peer.finish()

    # Pre-installed plugins.

    async def _start_installed(self) -> None:
        """Start them all at once, and wait until each is active or has failed."""
        if self._settings.plugin_path is None:
            return
        found, problems = find(self._settings.plugin_path)
        for each in problems:
            log.error("a file is started as no plugin", extra={"reason": each})
        settled = []
        for installed in found:
            event = asyncio.Event()
            settled.append(event.wait())
            self._begin(f"NRI plugin {installed.plugin}", self._keep(installed, event.set))
        await asyncio.gather(*settled)

    async def _keep(self, installed: PreinstalledPlugin, settled: Callable[[], None]) -> None:
        """One plugin; one that pods cannot do without is started again when it ends."""
        clock = asyncio.get_running_loop().time
        pause, most = _BACK_OFF
        while True:
            begun = clock()
            await self._life(installed, settled)
            settled()
            if not any(installed.plugin.is_meant_by(each) for each in self._settings.required_plugins):
                return
            if clock() - begun > most:
                pause = _BACK_OFF[0]
            log.info("a required plugin is started again", extra={"plugin": str(installed.plugin), "seconds": pause})
            await asyncio.sleep(pause)
            pause = min(2 * pause, most)

    async def _life(self, installed: PreinstalledPlugin, settled: Callable[[], None]) -> None:
        """A plugin from its start to its end, which is the end of its connection or of its process."""
        guest = PluginConnection(self._node, lambda _: None, launched=installed.plugin)
        try:
            config = configuration_of(installed.plugin, self._settings.plugin_config_path)
            async with launched(installed, guest) as guest.process:
                await self._attend(guest, config, settled)
        except (OSError, UnicodeError) as error:
            facts = {"plugin": str(installed.plugin), "reason": str(error)}
            log.error("a plugin cannot be started", extra=facts)  # noqa: TRY400 - the reason says it all
