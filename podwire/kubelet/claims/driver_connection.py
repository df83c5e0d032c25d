"""The connection to one process of a registered DRA driver: its calls, and the health of its devices."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from podwire.kubelet.claims import responses
from podwire.kubelet.claims.claim_info import ClaimInfo, PreparedDevice
from podwire.kubelet.claims.device_health import DeviceHealths, Key
from podwire.kubelet.claims.responses import DriverResults
from podwire.kubelet.claims.settings import ClaimSettings
from podwire.kubelet.plugin_manager import Announced
from podwire.kubelet.ports import DriverPeer, PluginSockets
from podwire.protocols.dra import dra_v1_pb2, dra_v1beta1_pb2, health_v1_pb2, health_v1alpha1_pb2, methods
from podwire.protocols.grpc_methods import ServerStream, Unary
from podwire.protocols.grpc_status import RpcError, Unavailable, Unimplemented

log = logging.getLogger(__name__)

CALLS: dict[str, tuple[Unary[Any, Any], Unary[Any, Any], ModuleType]] = {
    methods.V1: (methods.PREPARE_V1, methods.UNPREPARE_V1, dra_v1_pb2),
    methods.V1BETA1: (methods.PREPARE_V1BETA1, methods.UNPREPARE_V1BETA1, dra_v1beta1_pb2),
}
"""By the version as it is announced. Both versions' messages have the same names."""
HEALTH: dict[str, tuple[ServerStream[Any, Any], Any]] = {
    methods.HEALTH_V1: (methods.WATCH_HEALTH_V1, health_v1_pb2.NodeWatchResourcesRequest),
    methods.HEALTH_V1ALPHA1: (methods.WATCH_HEALTH_V1ALPHA1, health_v1alpha1_pb2.NodeWatchResourcesRequest),
}
"""Health streams by version, the preferred one first."""


class DriverConnection:
    """`on_connection` is called when the connection changes, `on_health` with devices whose health changed."""

    def __init__(
        self,
        sockets: PluginSockets,
        announced: Announced,
        version: str,
        settings: ClaimSettings,
        on_connection: Callable[["DriverConnection"], None],
        on_health: Callable[["DriverConnection", set[Key]], None],
    ) -> None:
        self.announced = announced
        self.connected = False
        self.healths = DeviceHealths()
        self.opened = asyncio.Event()
        self._sockets = sockets
        self._settings = settings
        self._on_connection = on_connection
        self._on_health = on_health
        self._calls = CALLS[version]
        self._health = next((HEALTH[version] for version in HEALTH if version in announced.versions), None)
        self._peer: DriverPeer | None = None
        self._connected_again = asyncio.Event()

    @property
    def name(self) -> str:
        return self.announced.name

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with self._sockets.driver(self.announced.endpoint) as self._peer, asyncio.TaskGroup() as group:
                self.opened.set()
                group.create_task(self._watch_connection(self._peer), name=f"connection of {self.name}")
                if self._health is not None:
                    group.create_task(self._watch_health(self._peer, *self._health), name=f"health of {self.name}")
        finally:
            self._peer = None
            self._set_connected(False)

    async def prepare(self, claims: Sequence[ClaimInfo]) -> DriverResults[tuple[PreparedDevice, ...]]:
        """RpcError."""
        call, _, messages = self._calls
        request = messages.NodePrepareResourcesRequest(claims=_named(messages, claims))
        return responses.prepared(self.name, claims, await self._call(call, request))

    async def unprepare(self, claims: Sequence[ClaimInfo]) -> DriverResults[None]:
        """RpcError."""
        _, call, messages = self._calls
        request = messages.NodeUnprepareResourcesRequest(claims=_named(messages, claims))
        return responses.unprepared(self.name, claims, await self._call(call, request))

    async def _call(self, call: Unary[Any, Any], request: Any) -> Any:
        if self._peer is None:
            raise Unavailable("the driver is not connected")
        try:
            return await self._peer.call(call, request, timeout=self._settings.call)
        except Unavailable as error:
            if self.connected:
                raise
            raise Unavailable(f"no answer at {self.announced.endpoint}") from error

    async def _watch_connection(self, peer: DriverPeer) -> None:
        async with contextlib.aclosing(peer.connections()) as changes:
            async for connected in changes:
                self._set_connected(connected)

    def _set_connected(self, connected: bool) -> None:
        if connected != self.connected:
            self.connected = connected
            if connected:
                self._connected_again.set()
            log.info("DRA driver connected" if connected else "DRA driver disconnected", extra={"driver": self.name})
            self._on_connection(self)

    async def _watch_health(self, peer: DriverPeer, method: ServerStream[Any, Any], request: Any) -> None:
        """Follow the health stream; reopen it when the driver connects, or after a pause. Ends if unimplemented."""
        while True:
            try:
                await self._follow(peer, method, request)
            except Unimplemented:
                log.info("DRA driver does not implement device health", extra={"driver": self.name})
                return
            except RpcError as error:
                log.info("DRA driver ended its health stream", extra={"driver": self.name, "error": str(error)})
            finally:
                self._notify(self.healths.clear())
            self._connected_again.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.health_pause):
                    await self._connected_again.wait()

    async def _follow(self, peer: DriverPeer, method: ServerStream[Any, Any], request: Any) -> None:
        """Follow one health stream; reports expire. Raises RpcError."""
        loop = asyncio.get_running_loop()
        async with contextlib.aclosing(peer.stream(method, request())) as reports:
            report = asyncio.ensure_future(anext(reports))
            try:
                while True:
                    pause = None if (until := self.healths.next) is None else max(0.0, until - loop.time())
                    await asyncio.wait((report,), timeout=pause)
                    if report.done():
                        self._notify(self.healths.update(report.result().devices, loop.time()))
                        report = asyncio.ensure_future(anext(reports))
                    self._notify(self.healths.expire(loop.time()))
            except StopAsyncIteration:
                return
            finally:
                report.cancel()
                await asyncio.gather(report, return_exceptions=True)

    def _notify(self, devices: set[Key]) -> None:
        if devices:
            self._on_health(self, devices)


def _named(messages: ModuleType, claims: Sequence[ClaimInfo]) -> list[Any]:
    return [messages.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name) for claim in claims]
