"""One process of a driver that has registered: the connection to it, its calls, and how its devices are."""

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
"""By the version as it is announced. Their messages have the same names."""
HEALTH: dict[str, tuple[ServerStream[Any, Any], Any]] = {
    methods.HEALTH_V1: (methods.WATCH_HEALTH_V1, health_v1_pb2.NodeWatchResourcesRequest),
    methods.HEALTH_V1ALPHA1: (methods.WATCH_HEALTH_V1ALPHA1, health_v1alpha1_pb2.NodeWatchResourcesRequest),
}
"""The same for how devices are, the better one first."""


class DriverConnection:
    """`connected` tells of the connection whenever it changes, `changed` of devices that are not as they were."""

    def __init__(
        self,
        door: PluginSockets,
        announced: Announced,
        version: str,
        settings: ClaimSettings,
        told: Callable[["DriverConnection"], None],
        changed: Callable[["DriverConnection", set[Key]], None],
    ) -> None:
        self.announced = announced
        self.connected = False
        self.healths = DeviceHealths()
        self.opened = asyncio.Event()
        self._door = door
        self._settings = settings
        self._told = told
        self._changed = changed
        self._calls = CALLS[version]
        self._health = next((HEALTH[each] for each in HEALTH if each in announced.versions), None)
        self._peer: DriverPeer | None = None
        self._came = asyncio.Event()

    @property
    def name(self) -> str:
        return self.announced.name

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with self._door.driver(self.announced.endpoint) as self._peer, asyncio.TaskGroup() as group:
                self.opened.set()
                group.create_task(self._watch_connection(self._peer), name=f"connection of {self.name}")
                if self._health is not None:
                    group.create_task(self._watch_health(self._peer, *self._health), name=f"health of {self.name}")
        finally:
            self._peer = None
            self._connection(there=False)

    async def prepare(self, claims: Sequence[ClaimInfo]) -> DriverResults[tuple[PreparedDevice, ...]]:
        """RpcError."""
        call, _, messages = self._calls
        request = messages.NodePrepareResourcesRequest(claims=_named(messages, claims))
        return responses.prepared(self.name, claims, await self._asked(call, request))

    async def unprepare(self, claims: Sequence[ClaimInfo]) -> DriverResults[None]:
        """RpcError."""
        _, call, messages = self._calls
        request = messages.NodeUnprepareResourcesRequest(claims=_named(messages, claims))
        return responses.unprepared(self.name, claims, await self._asked(call, request))

    async def _asked(self, call: Unary[Any, Any], request: Any) -> Any:
        if self._peer is None:
            raise Unavailable("it is not connected")
        try:
            return await self._peer.call(call, request, timeout=self._settings.call)
        except Unavailable as error:
            if self.connected:
                raise
            raise Unavailable(f"nobody answers at {self.announced.endpoint}") from error

    async def _watch_connection(self, peer: DriverPeer) -> None:
        async with contextlib.aclosing(peer.connections()) as changes:
            async for there in changes:
                self._connection(there=there)

    def _connection(self, *, there: bool) -> None:
        if there != self.connected:
            self.connected = there
            if there:
                self._came.set()
            log.info("driver connected" if there else "driver not connected", extra={"driver": self.name})
            self._told(self)

    async def _watch_health(self, peer: DriverPeer, method: ServerStream[Any, Any], request: Any) -> None:
        """A driver that does not know the call never will; any other is asked again, at once when it is back."""
        while True:
            try:
                await self._follow(peer, method, request)
            except Unimplemented:
                log.info("driver does not tell how its devices are", extra={"driver": self.name})
                return
            except RpcError as error:
                log.info("driver stopped telling of its devices", extra={"driver": self.name, "why": str(error)})
            finally:
                self._news(self.healths.clear())
            self._came.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.health_pause):
                    await self._came.wait()

    async def _follow(self, peer: DriverPeer, method: ServerStream[Any, Any], request: Any) -> None:
        """RpcError. What is told counts for a while only."""
        loop = asyncio.get_running_loop()
        async with contextlib.aclosing(peer.stream(method, request())) as reports:
            report = asyncio.ensure_future(anext(reports))
            try:
                while True:
                    pause = None if (until := self.healths.next) is None else max(0.0, until - loop.time())
                    await asyncio.wait((report,), timeout=pause)
                    if report.done():
                        self._news(self.healths.update(report.result().devices, loop.time()))
                        report = asyncio.ensure_future(anext(reports))
                    self._news(self.healths.expire(loop.time()))
            except StopAsyncIteration:
                return
            finally:
                report.cancel()
                await asyncio.gather(report, return_exceptions=True)

    def _news(self, devices: set[Key]) -> None:
        if devices:
            self._changed(self, devices)


def _named(messages: ModuleType, claims: Sequence[ClaimInfo]) -> list[Any]:
    return [messages.Claim(namespace=each.namespace, uid=each.uid, name=each.name) for each in claims]
