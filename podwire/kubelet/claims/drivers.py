"""The registered DRA drivers of this node.

While a driver is being replaced, two of its processes are registered: calls go to the one that registered last, as long
as it is connected.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from podwire.kubelet.claims import responses
from podwire.kubelet.claims.claim_info import ClaimInfo, PreparedDevice
from podwire.kubelet.claims.device_health import DeviceHealth, Key
from podwire.kubelet.claims.driver_connection import CALLS, DriverConnection
from podwire.kubelet.claims.responses import DriverResults
from podwire.kubelet.claims.settings import ClaimSettings
from podwire.kubelet.plugin_manager import Announced, Refused
from podwire.kubelet.ports import PluginSockets
from podwire.objects.names import dns_subdomain
from podwire.protocols.grpc_status import RpcError, Unavailable

log = logging.getLogger(__name__)

MAX_NAME, MAX_PATH = 63, 107
"""Limits: characters of a driver's name; bytes of a unix socket's path."""

T = TypeVar("T")


def choose_version(plugin: Announced) -> str:
    """The first of its versions that is supported. Raises Refused."""
    described = f"DRA driver plugin {plugin.name} at endpoint {plugin.endpoint}"
    if wrong := dns_subdomain(plugin.name):
        raise Refused(f"invalid name of DRA driver plugin {plugin.name!r}: {'; '.join(wrong)}")
    if len(plugin.name) > MAX_NAME:
        raise Refused(f"invalid name of DRA driver plugin {plugin.name!r}: must be no more than {MAX_NAME} characters")
    if not plugin.endpoint.is_absolute():
        raise Refused(f"invalid endpoint of {described}: expected an absolute path")
    if (size := len(os.fsencode(plugin.endpoint))) > MAX_PATH:
        raise Refused(f"invalid endpoint of {described}: it has {size} bytes, the limit is {MAX_PATH}")
    supported = next((version for version in plugin.versions if version in CALLS), None)
    if supported is None:
        offered = ", ".join(plugin.versions) or "none"
        raise Refused(
            f"invalid supported gRPC versions of {described}: {offered}; expected at least one of {', '.join(CALLS)}"
        )
    return supported


class Drivers:
    """A plugin handler. `run` is the parent of all connections.

    `on_connection` is called with a driver that registered, deregistered, connected or disconnected; `on_health` with a
    driver and its devices whose health changed.
    """

    def __init__(
        self,
        sockets: PluginSockets,
        settings: ClaimSettings,
        on_connection: Callable[[str], None],
        on_health: Callable[[str, set[Key]], None],
    ) -> None:
        self._sockets = sockets
        self._settings = settings
        self._on_connection = on_connection
        self._on_health = on_health
        self._connections: dict[str, list[DriverConnection]] = {}
        self._running: dict[DriverConnection, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self, ready: asyncio.Event) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            try:
                ready.set()
                await asyncio.Event().wait()
            finally:
                self._tasks = None  # a task group that is shutting down refuses new tasks

    async def register(self, plugin: Announced) -> None:
        """Raises Refused."""
        version = choose_version(plugin)
        if any(known.announced.endpoint == plugin.endpoint for known in self._connections.get(plugin.name, ())):
            raise Refused(f"endpoint {plugin.endpoint} already registered for DRA driver plugin {plugin.name}")
        if self._tasks is None:
            raise Unavailable("the kubelet is starting")
        connection = DriverConnection(
            self._sockets, plugin, version, self._settings, self._connection_changed, self._health_changed
        )
        with contextlib.ExitStack() as undo:
            undo.callback(self.deregister, plugin)
            self._connections.setdefault(plugin.name, []).append(connection)
            self._running[connection] = self._tasks.create_task(connection.run(), name=f"driver {plugin.name}")
            await connection.opened.wait()
            undo.pop_all()
        log.info("registered DRA driver", extra={"driver": plugin.name, "endpoint": str(plugin.endpoint)})
        self._on_connection(plugin.name)

    def deregister(self, plugin: Announced) -> None:
        known = self._connections.get(plugin.name, [])
        for connection in [connection for connection in known if connection.announced is plugin]:
            known.remove(connection)
            self._running.pop(connection).cancel()
            log.info("deregistered DRA driver", extra={"driver": plugin.name, "endpoint": str(plugin.endpoint)})
        if not self._connections.get(plugin.name, True):
            del self._connections[plugin.name]
        self._on_connection(plugin.name)

    def __contains__(self, name: str) -> bool:
        return bool(self._connections.get(name))

    @property
    def names(self) -> list[str]:
        return sorted(self._connections)

    def connected(self, name: str) -> bool:
        return any(connection.connected for connection in self._connections.get(name, ()))

    def health(self, name: str, pool: str, device: str) -> DeviceHealth | None:
        """As reported by the process that would be called; None if it is unknown."""
        healths = (connection.healths.get(pool, device) for connection in self._in_order(name))
        return next((health for health in healths if health is not None), None)

    async def prepare(self, name: str, claims: Sequence[ClaimInfo]) -> DriverResults[tuple[PreparedDevice, ...]]:
        return await self._call(name, responses.PREPARE, lambda connection: connection.prepare(claims))

    async def unprepare(self, name: str, claims: Sequence[ClaimInfo]) -> DriverResults[None]:
        return await self._call(name, responses.UNPREPARE, lambda connection: connection.unprepare(claims))

    async def _call(
        self, name: str, call: str, ask: Callable[[DriverConnection], Awaitable[DriverResults[T]]]
    ) -> DriverResults[T]:
        """A process that is unavailable has done nothing, so the next one is called; the first answer counts."""
        failure: RpcError | None = None
        for connection in self._in_order(name):
            try:
                return await ask(connection)
            except Unavailable as error:
                failure = error
            except RpcError as error:
                failure = error
                break
        if failure is None:
            return DriverResults(failures=[f"DRA driver {name} is not registered"])
        return responses.failed_call(name, call, failure)

    def _in_order(self, name: str) -> Iterator[DriverConnection]:
        """Connected processes first, and of them the one that registered last."""
        latest_first = self._connections.get(name, [])[::-1]
        yield from sorted(latest_first, key=lambda connection: not connection.connected)

    def _connection_changed(self, connection: DriverConnection) -> None:
        if connection in self._running:
            self._on_connection(connection.name)

    def _health_changed(self, connection: DriverConnection, devices: set[Key]) -> None:
        self._on_health(connection.name, devices)
