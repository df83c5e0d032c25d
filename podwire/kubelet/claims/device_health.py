"""How the devices of a driver are, as it told last, as long as that is worth something. Pure; times are monotonic."""

from collections.abc import Iterable
from typing import NamedTuple

from podwire.protocols.dra import health_v1_pb2, health_v1alpha1_pb2

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
_NAMES: dict[int, str] = {health_v1_pb2.HEALTHY: HEALTHY, health_v1_pb2.UNHEALTHY: UNHEALTHY}

TIMEOUT = 30.0
"""Seconds for which news are good when their teller does not say."""
MOST_DEVICES, MOST_MESSAGE = 16384, 1024

Key = tuple[str, str]
"""Pool and device."""
Told = health_v1_pb2.DeviceHealth | health_v1alpha1_pb2.DeviceHealth


class DeviceHealth(NamedTuple):
    status: str
    message: str
    until: float


class DeviceHealths:
    def __init__(self) -> None:
        self._told: dict[Key, DeviceHealth] = {}

    def update(self, devices: Iterable[Told], now: float) -> set[Key]:
        """The devices that are not as they were."""
        changed = set()
        for each in devices:
            key = each.device.pool_name, each.device.device_name
            if key not in self._told and len(self._told) >= MOST_DEVICES:
                continue
            good = each.health_check_timeout_seconds
            status = _NAMES.get(each.health, UNKNOWN)
            told = DeviceHealth(status, each.message[:MOST_MESSAGE], now + (good if good > 0 else TIMEOUT))
            before = self._told.get(key)
            if before is None or before[:2] != told[:2]:
                changed.add(key)
            self._told[key] = told
        return changed

    def expire(self, now: float) -> set[Key]:
        """Forget what is too old; which devices that was about."""
        old = {key for key, each in self._told.items() if each.until <= now}
        for each in old:
            del self._told[each]
        return old

    def clear(self) -> set[Key]:
        known = set(self._told)
        self._told.clear()
        return known

    def get(self, pool: str, device: str) -> DeviceHealth | None:
        return self._told.get((pool, device))

    @property
    def next(self) -> float | None:
        """When the next of them is too old."""
        return min((each.until for each in self._told.values()), default=None)
