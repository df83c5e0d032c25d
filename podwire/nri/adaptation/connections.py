"""Connections of plugins: a socket that only its owner can reach, and pre-installed plugins that are started here.

A connection has one task from its beginning to its end; an error in it ends that connection only.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from podwire.nri.adaptation.connected_plugin import ConnectedPlugin
from podwire.nri.adaptation.preinstalled import PreinstalledPlugin, find_plugins, launch, read_configuration
from podwire.nri.adaptation.registration import ContainerUpdater, PluginConnection, Registrar, RegistrationFailed
from podwire.nri.adaptation.settings import Settings
from podwire.protocols.nri.events import Event
from podwire.tasks.backoff import Pauses
from podwire.transports import unix_sockets

log = logging.getLogger(__name__)

_BACKLOG = 128
"""Connections that may wait to be accepted."""


class Connections:
    """Accepts plugins, and starts pre-installed ones, while it is open."""

    def __init__(
        self,
        settings: Settings,
        updater: ContainerUpdater,
        registrar: Registrar,
        lose: Callable[[ConnectedPlugin, str], None],
        on_active: Callable[[ConnectedPlugin], None],
    ) -> None:
        self._settings, self._updater, self._registrar = settings, updater, registrar
        self._lose, self._on_active = lose, on_active
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """On exit accepts nothing, closes all connections, kills the processes that were started here."""
        try:
            async with AsyncExitStack() as stack:
                if self._settings.socket is not None:
                    await stack.enter_async_context(self._listening(self._settings.socket))
                await self._start_preinstalled()
                yield
        finally:
            tasks = tuple(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start_task(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The socket.

    @asynccontextmanager
    async def _listening(self, path: Path) -> AsyncIterator[None]:
        async with unix_sockets.listening(path, _BACKLOG) as listener:
            server = await asyncio.get_running_loop().create_unix_server(
                lambda: PluginConnection(self._updater, self._accept), sock=listener
            )
            try:
                yield
            finally:
                server.close()

    def _accept(self, connection: PluginConnection) -> None:
        if connection.peer_uid not in (0, os.geteuid()):
            fields = {"uid": connection.peer_uid, "pid": connection.peer_pid}
            log.warning("rejected NRI connection of another user", extra=fields)
            connection.abort(f"user {connection.peer_uid} may not be a plugin")
            return
        self._start_task(f"NRI connection of process {connection.peer_pid}", self._serve(connection))

    async def _serve(
        self, connection: PluginConnection, config: str = "", active: Callable[[], None] = lambda: None
    ) -> None:
        """Serves one connection from its registration to its end; `active` is called when it is a plugin."""
        plugin, cause = None, "cancelled"
        try:
            plugin = await self._registrar.register(connection, config)
            await self._registrar.synchronize(plugin)
            events = ",".join(event.title for event in Event if event in plugin.events)
            fields = {"plugin": str(plugin.id), "pid": connection.pid, "events": events}
            log.info("NRI plugin is active", extra=fields)
            self._on_active(plugin)
            active()
            cause = await connection.wait_closed()
        except RegistrationFailed as error:
            cause = str(error)
            log.warning("NRI plugin was not registered", extra={"pid": connection.pid, "error": cause})
        except Exception as error:
            cause = f"the runtime failed: {error}"
            log.exception("closed NRI connection after an internal error", extra={"pid": connection.pid})
        except asyncio.CancelledError:
            cause = "the runtime stops"
            raise
        finally:
            if plugin is not None:
                self._lose(plugin, cause)
            await connection.close(cause)
            if plugin is not None:
                await plugin.drain()

    # Pre-installed plugins.

    async def _start_preinstalled(self) -> None:
        """Starts them all at once, and waits until each is active or has failed."""
        if self._settings.plugin_path is None:
            return
        plugins, problems = find_plugins(self._settings.plugin_path)
        for problem in problems:
            log.error("ignored file among pre-installed plugins", extra={"error": problem})
        waits = []
        for plugin in plugins:
            active_or_failed = asyncio.Event()
            waits.append(active_or_failed.wait())
            self._start_task(f"NRI plugin {plugin.id}", self._supervise(plugin, active_or_failed.set))
        await asyncio.gather(*waits)

    async def _supervise(self, plugin: PreinstalledPlugin, active_or_failed: Callable[[], None]) -> None:
        """Runs one plugin; a required one is started again, with back-off, when it ends."""
        clock = asyncio.get_running_loop().time
        pauses = Pauses(self._settings.first_restart, self._settings.longest_restart)
        while True:
            began = clock()
            await self._run(plugin, active_or_failed)
            active_or_failed()
            if not any(plugin.id.is_meant_by(name) for name in self._settings.required_plugins):
                return
            if clock() - began > self._settings.longest_restart:
                pauses.reset()
            pause = pauses.next()
            log.info("restarting required NRI plugin", extra={"plugin": str(plugin.id), "seconds": pause})
            await asyncio.sleep(pause)

    async def _run(self, plugin: PreinstalledPlugin, active: Callable[[], None]) -> None:
        """Runs a plugin until its connection or its process ends."""
        connection = PluginConnection(self._updater, lambda _: None, launched=plugin.id)
        try:
            config = read_configuration(plugin.id, self._settings.plugin_config_path)
            async with launch(plugin, connection) as connection.process:
                await self._serve(connection, config, active)
        except (OSError, UnicodeError) as error:
            fields = {"plugin": str(plugin.id), "error": str(error)}
            log.error("cannot start pre-installed plugin", extra=fields)  # noqa: TRY400 - the error says it all
