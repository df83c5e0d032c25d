"""Registration of a plugin on its connection: RegisterPlugin, Configure, Synchronize.

Each connection has its own task for that, so that a slow plugin delays no other registration.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from podwire.interfaces import Tap
from podwire.nri.adaptation.connected_plugin import ConnectedPlugin
from podwire.nri.adaptation.settings import Settings
from podwire.nri.adaptation.statistics import Statistics
from podwire.protocols.grpc_methods import UnaryHandler
from podwire.protocols.grpc_status import FailedPrecondition, InvalidArgument, RpcError, Unimplemented
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.batches import batches
from podwire.protocols.nri.errors import Refused
from podwire.protocols.nri.events import Subscription
from podwire.protocols.nri.names import BadName, PluginId, plugin_id
from podwire.protocols.nri.updates import check_updates
from podwire.protocols.ttrpc import mux
from podwire.transports.mux_connection import MuxConnection, MuxConnectionError, Services


class ContainerUpdater(Protocol):
    """Updates containers that exist already."""

    async def update_containers(self, updates: Sequence[pb.ContainerUpdate]) -> list[pb.ContainerUpdate]:
        """Apply updates, and return those that failed.

        Plugins call this from inside hooks, too: it must not wait for anything that a hook holds up.
        """
        ...


log = logging.getLogger(__name__)

NRI_VERSION = "v0.12.2"
"""The version that this adaptation speaks."""
OLD_NRI_VERSION = "v0.11.0"
"""The version of `state_change` settings: the last one in which most events had no method of their own."""

Snapshot = Callable[[ConnectedPlugin], tuple[tuple[pb.PodSandbox, ...], tuple[pb.Container, ...]]]
"""Registers a plugin and, in the same step, copies the inventory."""


class RegistrationFailed(Exception):
    """This connection does not become a plugin; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo:
    """The runtime as Configure describes it."""

    name: str
    version: str


class PluginConnection(MuxConnection):
    """A plugin's connection, with the Runtime service that the plugin may call."""

    def __init__(
        self,
        updater: ContainerUpdater,
        on_connected: "Callable[[PluginConnection], None]",
        *,
        launched: PluginId | None = None,
    ) -> None:
        handlers: dict[str, UnaryHandler] = {
            "RegisterPlugin": self._register_plugin,
            "UpdateContainers": self._update_containers,
        }
        super().__init__(
            Services(methods.RUNTIME, handlers), asks_on=mux.PLUGIN_SERVICE, answers_on=mux.RUNTIME_SERVICE
        )
        self._updater = updater
        self._on_connected = on_connected
        self.launched = launched
        """The identity of a pre-installed plugin: its file name decides, not what it registers as."""
        self.process = 0
        """The pid of a pre-installed plugin."""
        self.registered: asyncio.Future[PluginId] = asyncio.get_running_loop().create_future()
        self.plugin: ConnectedPlugin | None = None

    @property
    def pid(self) -> int:
        return self.process or self.peer_pid  # SO_PEERCRED of a socket pair names this process

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._on_connected(self)

    async def _register_plugin(self, request: pb.RegisterPluginRequest) -> pb.Empty:
        if self.registered.done():
            raise FailedPrecondition("RegisterPlugin: this connection is registered already")
        try:
            identity = plugin_id(request.plugin_idx, request.plugin_name)
        except BadName as error:
            if self.launched is None:
                self.registered.set_exception(RegistrationFailed(str(error)))
                raise InvalidArgument(str(error)) from error
            identity = self.launched
        self.registered.set_result(self.launched or identity)
        return pb.Empty()

    async def _update_containers(self, request: pb.UpdateContainersRequest) -> pb.UpdateContainersResponse:
        """Plugins call this from inside hooks, too, so it does not take a plugin's lock."""
        if self.plugin is None:
            raise FailedPrecondition("UpdateContainers: RegisterPlugin and Configure come first")
        if request.evict:
            ids = ", ".join(eviction.container_id for eviction in request.evict)
            raise Unimplemented(f"evict: evictions are not supported; nothing was done ({ids})")
        try:
            updates = check_updates(str(self.plugin.id), request.update)
        except Refused as error:
            raise InvalidArgument(str(error)) from error
        return pb.UpdateContainersResponse(failed=await self._updater.update_containers(updates))


class Registrar:
    """Registers and synchronizes plugins."""

    def __init__(
        self,
        settings: Settings,
        updater: ContainerUpdater,
        runtime: RuntimeInfo,
        statistics: Statistics,
        *,
        snapshot: Snapshot,
        lose: Callable[[ConnectedPlugin, str], None],
        tap: Tap | None,
    ) -> None:
        self._settings, self._updater, self._runtime = settings, updater, runtime
        self._statistics, self._snapshot, self._lose, self._tap = statistics, snapshot, lose, tap

    async def register(self, connection: PluginConnection, config: str) -> ConnectedPlugin:
        """Waits for RegisterPlugin and calls Configure. Raises RegistrationFailed."""
        identity = await self._wait_for_registration(connection)
        own = self._settings.of(identity)
        record = self._statistics.of(identity)
        record.pid, record.launched = connection.pid, connection.launched is not None
        plugin = ConnectedPlugin(
            identity,
            connection,
            record,
            self._lose,
            timeout=own.timeout or self._settings.request_timeout,
            concurrent=own.concurrent,
            slow_share=self._settings.slow_share,
            state_change=self._settings.state_change,
            tap=self._tap,
        )
        try:
            plugin.subscribe(await self._configure(connection, plugin, config))
        except RegistrationFailed as error:
            plugin.close(str(error))
            raise
        connection.plugin = plugin
        return plugin

    async def _wait_for_registration(self, connection: PluginConnection) -> PluginId:
        timeout = self._settings.registration_timeout
        either: list[asyncio.Future[Any]] = [connection.registered, connection.closed]
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if connection.registered.done():
            return connection.registered.result()
        connection.registered.cancel()
        closed = connection.closed
        raise RegistrationFailed(closed.result() if closed.done() else f"no RegisterPlugin within {timeout:g} s")

    async def _configure(self, connection: PluginConnection, plugin: ConnectedPlugin, config: str) -> Subscription:
        request = pb.ConfigureRequest(
            config=config or self._settings.plugin_config,
            runtime_name=self._runtime.name,
            runtime_version=self._runtime.version,
            registration_timeout=int(self._settings.registration_timeout * 1000),
            request_timeout=int(plugin.timeout * 1000),
            NRI_version=OLD_NRI_VERSION if self._settings.state_change else NRI_VERSION,
        )
        try:
            response = await connection.call(methods.CONFIGURE, request, within=self._settings.registration_timeout)
        except (RpcError, MuxConnectionError) as error:
            raise RegistrationFailed(f"Configure: {error}") from error
        events = Subscription(response.events & 0xFFFFFFFF)
        if events.unknown:
            raise RegistrationFailed(f"Configure: events {events.unknown:#x} are not defined in NRI {NRI_VERSION}")
        return events

    async def synchronize(self, plugin: ConnectedPlugin) -> None:
        """Registers the plugin and sends it the snapshot. Raises RegistrationFailed; the caller then removes it.

        Hooks of this plugin wait meanwhile, so that events since the snapshot reach it afterwards, in order.
        """
        plugin.synchronizing()
        pods, containers = self._snapshot(plugin)
        timeout = self._settings.synchronize_timeout
        try:
            async with asyncio.timeout(timeout):
                for request in batches(pods, containers):
                    response = await plugin.connection.call(methods.SYNCHRONIZE, request, within=timeout)
                    if request.more and not response.more:
                        raise RegistrationFailed("Synchronize: the plugin does not handle split requests")
        except TimeoutError:
            raise RegistrationFailed(f"Synchronize: no answer within {timeout:g} s") from None
        except (RpcError, MuxConnectionError) as error:
            raise RegistrationFailed(f"Synchronize: {error}") from error
        plugin.activate()
        await self._apply(plugin, list(response.update))

    async def _apply(self, plugin: ConnectedPlugin, updates: list[pb.ContainerUpdate]) -> None:
        """Failed updates are logged, and the plugin stays registered, as in containerd."""
        if not updates:
            return
        try:
            failed = await self._updater.update_containers(check_updates(str(plugin.id), updates))
        except Refused as error:
            fields = {"plugin": str(plugin.id), "error": str(error)}
            log.warning("rejected updates of a Synchronize response", extra=fields)
            return
        log_failed_updates(str(plugin.id), failed)


def log_failed_updates(requester: str, failed: Iterable[pb.ContainerUpdate]) -> None:
    for update in failed:
        fields = {"requester": requester, "container": update.container_id}
        log.warning("cannot update container for NRI plugin", extra=fields)
