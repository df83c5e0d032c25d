"""NodeWatchResources: the health of all devices, at once, after each change, and repeated."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from types import ModuleType
from typing import Any

from podwire.dradriver.inventory.health import Health

LONGEST_MESSAGE = 1024
"""Bytes of a device's health message."""


class DeviceHealthStream:
    """Feeds all streams. `health` returns the health by device."""

    REPEAT_SECONDS = 10.0
    """Kubelets take a device for unknown that was not reported for three times as long."""

    def __init__(self, pool: str, health: Callable[[], Mapping[str, Health]]) -> None:
        self._pool, self._health = pool, health
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Sends the health to all streams."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def stream(self, pb: ModuleType) -> AsyncIterator[Any]:
        while True:
            changed = self._changed
            devices = [self._device(pb, name, health) for name, health in self._health().items()]
            yield pb.NodeWatchResourcesResponse(devices=devices)
            try:
                async with asyncio.timeout(self.REPEAT_SECONDS):
                    await changed.wait()
            except TimeoutError:
                continue

    def _device(self, pb: ModuleType, name: str, health: Health) -> Any:
        return pb.DeviceHealth(
            device=pb.DeviceIdentifier(pool_name=self._pool, device_name=name),
            health=pb.HEALTHY if health.healthy else pb.UNHEALTHY,
            last_updated_time=int(health.since),
            message=health.message.encode()[:LONGEST_MESSAGE].decode(errors="ignore"),
        )
