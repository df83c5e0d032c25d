"""The driver put together: what it serves, follows and tells, and in which order it comes and goes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

from podwire.dradriver import service
from podwire.dradriver.attach.attachments import Attachments
from podwire.dradriver.attach.pods import Moving
from podwire.dradriver.attach.records import ATTACHED
from podwire.dradriver.claims.character_device_plugin import CharacterDevices, PodResources
from podwire.dradriver.claims.container_files import Describing
from podwire.dradriver.claims.damaged_records import whose
from podwire.dradriver.claims.prepared_devices import Holding
from podwire.dradriver.dra_hooks import Preparing
from podwire.dradriver.instances import Voice
from podwire.dradriver.inventory.inventory import Inventory
from podwire.dradriver.kit import Kit
from podwire.dradriver.nri_hooks import NetworkDriverPlugin
from podwire.dradriver.ports import Addressing, Door, Record, Served
from podwire.dradriver.publish.events import RECORD_DAMAGED
from podwire.dradriver.publish.interface_counters import counted
from podwire.dradriver.publish.publisher import Publisher
from podwire.dradriver.publish.registration import Registration
from podwire.dradriver.publish.sockets import Sockets
from podwire.dradriver.service import Health, Told
from podwire.protocols.deviceplugin.methods import PLUGIN
from podwire.protocols.k8sapi.client_side.events import WARNING
from podwire.protocols.prometheus import Labels, Samples
from podwire.protocols.registration.methods import ALL as REGISTRATION

LINGER = 2.0
"""Seconds that pods whose claims are prepared have left to be attached when the driver stops."""
LAST_WORDS = 1.0
"""Seconds for statuses and events that are not written yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the driver consists of, made by whoever has the outside world."""

    kit: Kit
    inventory: Inventory
    attachments: Attachments
    holding: Holding
    publisher: Publisher
    addressing: Addressing
    door: Door
    kubelet: PodResources
    sockets: Sockets
    voice: Voice


class Driver:
    def __init__(self, parts: Parts) -> None:
        self._parts, self._kit = parts, parts.kit
        kit = parts.kit
        describing = Describing(kit.cdi, kit.metadata, kit.devices, kit.attachments)
        self._health = Health(kit.node, self._told)
        self._registration = Registration(parts.sockets.dra, parts.publisher.again)
        self._chardev = CharacterDevices(kit, parts.kubelet, parts.sockets.chardev)
        self._moving = Moving(kit, describing)
        self._preparing = Preparing(kit, describing, self._moving)
        self.plugin = NetworkDriverPlugin(kit, self._moving, parts.voice)
        self._serving = False

    async def run(self) -> None:
        """Work until cancelled, beside the plugin's connection to the runtime.

        1. What is prepared is held, and the host looked at, before anybody hears of devices.   2. Links, slices,
        statuses, events are followed.   3. The driver's sockets, then those by which kubelets find them.
        """
        parts = self._parts
        await asyncio.to_thread(parts.holding.settle_all)
        await asyncio.to_thread(parts.inventory.look)
        await self._sweep()
        async with asyncio.TaskGroup() as group:
            group.create_task(parts.inventory.run(), name="inventory")
            group.create_task(parts.holding.run(), name="prepared devices")
            group.create_task(parts.publisher.run(), name="slices")
            group.create_task(self._follow_health(), name="health")
            group.create_task(self._follow_illness(), name="pods whose devices are not well")
            group.create_task(self._kit.statuses.run(), name="statuses")
            group.create_task(self._kit.events.run(), name="events")
            group.create_task(parts.addressing.run(), name="leases")
            group.create_task(self._follow_leases(), name="pods that have leases")
            await self._serve()

    async def _sweep(self) -> None:
        """Free addresses that somebody reserved who was killed before it was on record for what; CDI files likewise."""
        async with self._kit.lock.held():
            records = await asyncio.to_thread(self._kit.attachments.records)
            claims = {each.order.claim.uid for each in records}
            await self._parts.addressing.sweep(records)
            await asyncio.to_thread(self._kit.cdi.settle, claims)
        for each in await asyncio.to_thread(self._kit.damage.found):
            self._kit.events.tell(await asyncio.to_thread(whose, each), WARNING, RECORD_DAMAGED, each.told)

    async def _serve(self) -> None:
        """Leaving is the other way round: nobody finds the driver, then nobody asks it."""
        parts = self._parts
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._leave)
            for path, table, handlers in (
                (parts.sockets.dra, service.TABLE, service.handlers(self._preparing, self._health)),
                (parts.sockets.chardev, PLUGIN, self._chardev.handlers),
                (parts.sockets.registration, REGISTRATION, self._registration.handlers),
            ):
                stack.push_async_callback((await parts.door.serve(path, table, handlers)).close)
            self._serving = True
            await self._announce_character_devices()

    async def _announce_character_devices(self) -> None:
        """Again whenever a kubelet lost us, in which case it forgot us: a socket that is made anew is asked anew."""
        parts, lost = self._parts, self._chardev.lost
        while True:
            lost.clear()
            server: Served = await parts.door.serve(
                parts.sockets.chardev_registration, REGISTRATION, self._chardev.registration
            )
            try:
                await lost.wait()
            finally:
                await server.close()

    async def _leave(self) -> None:
        """Nobody prepares any more. Pods that are about to start get their devices; then it is told what there is."""
        self._serving = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                await self._moving.settled()
        await self.plugin.finish(LINGER)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await asyncio.gather(self._kit.statuses.idle(), self._kit.events.idle())

    async def _follow_leases(self) -> None:
        """Side by side: one pod may be busy."""
        async with asyncio.TaskGroup() as group:
            async for key in self._parts.addressing.changes():
                group.create_task(self._moving.follow(key), name=f"lease of {key}")

    # How devices are.

    async def _follow_health(self) -> None:
        async for _ in self._changes():
            self._health.changed()

    async def _follow_illness(self) -> None:
        async for _ in self._changes():
            await self._moving.not_well({each.device: each.message for each in self._told() if not each.healthy})

    def _changes(self) -> AsyncIterator[None]:
        return self._parts.inventory.changes()

    def _told(self) -> Sequence[Told]:
        return [
            Told(device=name, healthy=each.healthy, message=each.message, since=each.since)
            for name, each in self._parts.inventory.health().items()
        ]

    # What operators ask.

    def lacking(self) -> list[str]:
        """Why new pods cannot be served; nothing when they can."""
        return [
            *([] if self._serving else ["the driver's sockets are not there yet"]),
            *([f"no kubelet: {self._registration.refusal}"] if self._registration.refusal else []),
            *([] if self.plugin.ready.is_set() else ["no runtime is connected"]),
            *([self._kit.lock.waiting] if self._kit.lock.waiting else []),
        ]

    async def metrics(self) -> str:
        records = await asyncio.to_thread(self._kit.attachments.records)
        found = await asyncio.to_thread(counted, records)
        damage = await asyncio.to_thread(self._kit.damage.found)
        health = self._parts.inventory.health()
        gauges: dict[str, tuple[str, Samples]] = {
            "devices": (
                "Devices that are offered",
                [((("healthy", _word(on)),), n) for on, n in _counts(health.values())],
            ),
            "prepared_devices": ("Devices that claims have", [((), len(records))]),
            "attached_devices": ("Devices that are in pods", [((), sum(each.stage == ATTACHED for each in records))]),
            "damaged_records": ("Records that could not be read", [((), len(damage))]),
            "statuses_waiting": ("Claims whose status is not written yet", [((), self._kit.statuses.waiting)]),
            "ready": ("Whether new pods can be served", [((), 0 if self.lacking() else 1)]),
        }
        for field in found[0].counters if found else ():
            samples = [(_labels(each.record), float(each.counters[field])) for each in found]
            gauges[f"interface_{field}"] = ("Of interfaces in pods", samples)
        return self._kit.meter.text(gauges)


def _counts(health: Iterable[object]) -> list[tuple[bool, int]]:
    states = [bool(getattr(each, "healthy", False)) for each in health]
    return [(on, states.count(on)) for on in (True, False)]


def _word(on: bool) -> str:
    return "true" if on else "false"


def _labels(record: Record) -> Labels:
    order = record.order
    return (
        ("namespace", order.pod.namespace),
        ("pod", order.pod.name),
        ("claim", order.claim.name),
        ("request", order.request),
        ("device", order.offered.device),
        ("interface", order.settings.name),
    )
