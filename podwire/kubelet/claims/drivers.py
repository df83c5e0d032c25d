"""The drivers of this node: who has registered, and which process of a driver is asked.

While a driver is replaced there are two: the one that came last is asked, as long as it can be reached.
"""

import asyncio
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
"""Characters of a driver's name; bytes that the kernel takes for a socket's path."""

T = TypeVar("T")


def version_of(plugin: Announced) -> str:
    """The first of its versions that is known here. Refused."""
    told = f"DRA driver plugin {plugin.name} at endpoint {plugin.endpoint}"
    if wrong := dns_subdomain(plugin.name):
        raise Refused(f"invalid name of DRA driver plugin {plugin.name!r}: {'; '.join(wrong)}")
    if len(plugin.name) > MAX_NAME:
        raise Refused(f"invalid name of DRA driver plugin {plugin.name!r}: must be no more than {MAX_NAME} characters")
    if not plugin.endpoint.is_absolute():
        raise Refused(f"invalid endpoint of {told}: expected an absolute path")
    if (size := len(os.fsencode(plugin.endpoint))) > MAX_PATH:
        raise Refused(f"invalid endpoint of {told}: it has {size} bytes, and {MAX_PATH} is all")
    found = next((each for each in plugin.versions if each in CALLS), None)
    if found is None:
        offered = ", ".join(plugin.versions) or "none"
        raise Refused(
            f"invalid supported gRPC versions of {told}: {offered}; expected at least one of {', '.join(CALLS)}"
        )
    return found


class Drivers:
    """A `plugins.Handler`. `run` is the parent of all conversations.

    `moved` is told of a driver that came, went or is connected or not; `changed` of one whose devices are not as they
    were.
    """

    def __init__(
        self,
        door: PluginSockets,
        settings: ClaimSettings,
        moved: Callable[[str], None],
        changed: Callable[[str, set[Key]], None],
    ) -> None:
        self._door = door
        self._settings = settings
        self._moved = moved
        self._changed = changed
        self._instances: dict[str, list[DriverConnection]] = {}
        self._talks: dict[DriverConnection, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self, ready: asyncio.Event) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                ready.set()
                await asyncio.Event().wait()
            finally:
                self._group = None  # a group that ends takes nobody new

    async def register(self, plugin: Announced) -> None:
        """Refused."""
        version = version_of(plugin)
        if any(each.announced.endpoint == plugin.endpoint for each in self._instances.get(plugin.name, ())):
            raise Refused(f"endpoint {plugin.endpoint} already registered for DRA driver plugin {plugin.name}")
        if self._group is None:
            raise Unavailable("the kubelet is starting")
        instance = DriverConnection(self._door, plugin, version, self._settings, self._connected, self._told)
        self._instances.setdefault(plugin.name, []).append(instance)
        self._talks[instance] = self._group.create_task(instance.run(), name=f"driver {plugin.name}")
        try:
            await instance.opened.wait()
        except BaseException:  # it went meanwhile
            self.deregister(plugin)
            raise
        log.info("driver registered", extra={"driver": plugin.name, "endpoint": str(plugin.endpoint)})
        self._moved(plugin.name)

    def deregister(self, plugin: Announced) -> None:
        for each in [each for each in self._instances.get(plugin.name, ()) if each.announced is plugin]:
            self._instances[plugin.name].remove(each)
            self._talks.pop(each).cancel()
            log.info("driver gone", extra={"driver": plugin.name, "endpoint": str(plugin.endpoint)})
        if not self._instances.get(plugin.name, True):
            del self._instances[plugin.name]
        self._moved(plugin.name)

    def __contains__(self, name: str) -> bool:
        return bool(self._instances.get(name))

    @property
    def names(self) -> list[str]:
        return sorted(self._instances)

    def connected(self, name: str) -> bool:
        return any(each.connected for each in self._instances.get(name, ()))

    def health(self, name: str, pool: str, device: str) -> DeviceHealth | None:
        """As told by whoever would be asked; None when nobody told."""
        told = (each.healths.get(pool, device) for each in self._in_order(name))
        return next((each for each in told if each is not None), None)

    async def prepare(self, name: str, claims: Sequence[ClaimInfo]) -> DriverResults[tuple[PreparedDevice, ...]]:
        return await self._asked(name, responses.PREPARE, lambda each: each.prepare(claims))

    async def unprepare(self, name: str, claims: Sequence[ClaimInfo]) -> DriverResults[None]:
        return await self._asked(name, responses.UNPREPARE, lambda each: each.unprepare(claims))

    async def _asked(
        self, name: str, call: str, ask: Callable[[DriverConnection], Awaitable[DriverResults[T]]]
    ) -> DriverResults[T]:
        """Who is not there has done nothing, so the next may be asked; whoever answers has the last word."""
        why: RpcError | None = None
        for each in self._in_order(name):
            try:
                return await ask(each)
            except Unavailable as error:
                why = error
            except RpcError as error:
                why = error
                break
        if why is None:
            return DriverResults(failures=[f"DRA driver {name} is not registered"])
        return responses.failed(name, call, why)

    def _in_order(self, name: str) -> Iterator[DriverConnection]:
        """Those that are connected first, and of them the one that came last."""
        latest_first = self._instances.get(name, [])[::-1]
        yield from sorted(latest_first, key=lambda each: not each.connected)

    def _connected(self, instance: DriverConnection) -> None:
        if instance in self._talks:
            self._moved(instance.name)

    def _told(self, instance: DriverConnection, devices: set[Key]) -> None:
        self._changed(instance.name, devices)
