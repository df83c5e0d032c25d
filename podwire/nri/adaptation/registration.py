"""How a connection becomes a plugin that is asked: RegisterPlugin, Configure, Synchronize.

Each connection has a task of its own for that, so a slow one delays nobody else's registration.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from podwire.interfaces import Tap
from podwire.nri.adaptation.connected_plugin import ConnectedPlugin
from podwire.nri.adaptation.ports import ContainerUpdater
from podwire.nri.adaptation.settings import Settings
from podwire.nri.adaptation.statistics import Records
from podwire.protocols.grpc_methods import UnaryHandler
from podwire.protocols.grpc_status import FailedPrecondition, InvalidArgument, RpcError, Unimplemented
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.batches import batches
from podwire.protocols.nri.errors import Refused
from podwire.protocols.nri.events import Event, Subscription
from podwire.protocols.nri.names import BadName, PluginId, plugin_id
from podwire.protocols.nri.updates import check_updates
from podwire.protocols.ttrpc import mux
from podwire.transports.mux_connection import MuxConnection, MuxConnectionError, Services

log = logging.getLogger(__name__)

NRI_VERSION = "v0.12.2"
"""What this host speaks."""
OLD_NRI_VERSION = "v0.11.0"
"""What it speaks when it is told to: the last version in which events had no calls of their own."""

Snapshot = Callable[[ConnectedPlugin], tuple[tuple[pb.PodSandbox, ...], tuple[pb.Container, ...]]]
"""Gives a plugin its seat and, in the same step, what there is on the node."""


class RegistrationFailed(Exception):
    """This connection becomes no plugin; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Who the host sits in, as plugins are told."""

    name: str
    version: str


class PluginConnection(MuxConnection):
    """A connection: what it may ask for before and after it is a plugin."""

    def __init__(
        self, node: ContainerUpdater, arrived: "Callable[[PluginConnection], None]", *, launched: PluginId | None = None
    ) -> None:
        handlers: dict[str, UnaryHandler] = {
            "RegisterPlugin": self._register,
            "UpdateContainers": self._update_containers,
        }
        super().__init__(
            Services(methods.RUNTIME, handlers), asks_on=mux.PLUGIN_SERVICE, answers_on=mux.RUNTIME_SERVICE
        )
        self._node = node
        self._arrived = arrived
        self.launched = launched
        """Who it is, when the host has started it: its file decides, not what it says."""
        self.process = 0
        """The process that the host has started for it."""
        self.registered: asyncio.Future[PluginId] = asyncio.get_running_loop().create_future()
        self.peer: ConnectedPlugin | None = None

    @property
    def pid(self) -> int:
        return self.process or self.peer_pid  # at the other end of a pair of ours the kernel sees ourselves

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._arrived(self)

    async def _register(self, request: pb.RegisterPluginRequest) -> pb.Empty:
        if self.registered.done():
            raise FailedPrecondition("RegisterPlugin: this connection is registered already")
        try:
            told = plugin_id(request.plugin_idx, request.plugin_name)
        except BadName as error:
            if self.launched is None:
                self.registered.set_exception(RegistrationFailed(str(error)))
                raise InvalidArgument(str(error)) from error
            told = self.launched
        self.registered.set_result(self.launched or told)
        return pb.Empty()

    async def _update_containers(self, request: pb.UpdateContainersRequest) -> pb.UpdateContainersResponse:
        """Asked from inside a hook, too, so it waits for no plugin's turn."""
        if self.peer is None:
            raise FailedPrecondition("UpdateContainers: RegisterPlugin and Configure come first")
        if request.evict:
            named = ", ".join(each.container_id for each in request.evict)
            raise Unimplemented(f"evict: this runtime evicts no container for a plugin; nothing was done ({named})")
        try:
            updates = check_updates(str(self.peer.id), request.update)
        except Refused as error:
            raise InvalidArgument(str(error)) from error
        return pb.UpdateContainersResponse(failed=await self._node.update_containers(updates))


class Registrar:
    """Leads guests in."""

    def __init__(
        self,
        settings: Settings,
        node: ContainerUpdater,
        runtime: Runtime,
        records: Records,
        *,
        snapshot: Snapshot,
        lose: Callable[[ConnectedPlugin, str], None],
        tap: Tap | None,
    ) -> None:
        self._settings = settings
        self._node = node
        self._runtime = runtime
        self._records = records
        self._snapshot = snapshot
        self._lose = lose
        self._tap = tap

    async def register(self, guest: PluginConnection, config: str) -> ConnectedPlugin:
        """The plugin, configured. Raises NotAdmitted."""
        plugin = await self._name(guest)
        own = self._settings.of(plugin)
        within = own.timeout or self._settings.request_timeout
        record = self._records.of(plugin)
        record.pid, record.launched = guest.pid, guest.launched is not None
        peer = ConnectedPlugin(plugin, guest, record, self._lose, within=within, concurrent=own.concurrent)
        peer.watched_by(self._tap)
        peer.by_state_change = self._settings.state_change
        try:
            peer.subscribe(await self._configure(guest, peer, config))
        except RegistrationFailed as error:
            peer.gone(str(error))
            raise
        guest.peer = peer
        return peer

    async def _name(self, guest: PluginConnection) -> PluginId:
        limit = self._settings.registration_timeout
        either: list[asyncio.Future[Any]] = [guest.registered, guest.closed]
        await asyncio.wait(either, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if guest.registered.done():
            return guest.registered.result()
        guest.registered.cancel()
        raise RegistrationFailed(
            guest.closed.result() if guest.closed.done() else f"no RegisterPlugin within {limit:g} s"
        )

    async def _configure(self, guest: PluginConnection, peer: ConnectedPlugin, config: str) -> Subscription:
        request = pb.ConfigureRequest(
            config=config or self._settings.plugin_config,
            runtime_name=self._runtime.name,
            runtime_version=self._runtime.version,
            registration_timeout=int(self._settings.registration_timeout * 1000),
            request_timeout=int(peer.within * 1000),
            NRI_version=OLD_NRI_VERSION if self._settings.state_change else NRI_VERSION,
        )
        try:
            answer = await guest.call(methods.CONFIGURE, request, within=self._settings.registration_timeout)
        except (RpcError, MuxConnectionError) as error:
            raise RegistrationFailed(f"Configure: {error}") from error
        wanted = Subscription(answer.events & 0xFFFFFFFF)
        if wanted.unknown:
            raise RegistrationFailed(f"Configure: events {wanted.unknown:#x} stand for nothing in NRI {NRI_VERSION}")
        return wanted

    async def synchronize(self, peer: ConnectedPlugin) -> None:
        """Give it its seat and tell it what there is. Raises NotAdmitted; the seat is then the caller's to take away.

        Its hooks wait meanwhile, so what happens from the snapshot on reaches it afterwards, and in order.
        """
        peer.synchronizing()
        pods, containers = self._snapshot(peer)
        try:
            async with asyncio.timeout(self._settings.synchronize_timeout):
                updates = await self._tell(peer, pods, containers)
        except TimeoutError:
            limit = self._settings.synchronize_timeout
            raise RegistrationFailed(f"Synchronize: not done within {limit:g} s") from None
        except (RpcError, MuxConnectionError) as error:
            raise RegistrationFailed(f"Synchronize: {error}") from error
        peer.activate()
        await self._apply(peer, updates)

    async def _tell(
        self, peer: ConnectedPlugin, pods: tuple[pb.PodSandbox, ...], containers: tuple[pb.Container, ...]
    ) -> list[pb.ContainerUpdate]:
        limit = self._settings.synchronize_timeout
        for request in batches(pods, containers):
            answer = await peer.connection.call(methods.SYNCHRONIZE, request, within=limit)
            if request.more and not answer.more:
                raise RegistrationFailed("Synchronize: the plugin does not handle split requests")
        return list(answer.update)

    async def _apply(self, peer: ConnectedPlugin, updates: list[pb.ContainerUpdate]) -> None:
        """As containerd does: what fails is logged, and the plugin stays."""
        if not updates:
            return
        try:
            failed = await self._node.update_containers(check_updates(str(peer.id), updates))
        except Refused as error:
            log.warning("an answer to Synchronize is not taken", extra={"plugin": str(peer.id), "error": str(error)})
            return
        log_failed(str(peer.id), failed)


def log_failed(plugin: str, failed: list[pb.ContainerUpdate]) -> None:
    for each in failed:
        log.warning("an update failed", extra={"plugin": plugin, "container": each.container_id})


def titles(events: Subscription) -> str:
    """For the log."""
    return ",".join(each.title for each in Event if each in events)
