"""Health of a driver's devices as it reported it last, until the report expires. Pure; times are monotonic."""

from collections.abc import Iterable
from typing import NamedTuple

from podwire.protocols.dra import health_v1_pb2, health_v1alpha1_pb2

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
_NAMES: dict[int, str] = {health_v1_pb2.HEALTHY: HEALTHY, health_v1_pb2.UNHEALTHY: UNHEALTHY}

TIMEOUT = 30.0
"""Seconds until a report expires, unless it names a timeout."""
MOST_DEVICES, MOST_MESSAGE = 16384, 1024

Key = tuple[str, str]
"""Pool and device."""
Report = health_v1_pb2.DeviceHealth | health_v1alpha1_pb2.DeviceHealth


class DeviceHealth(NamedTuple):
    status: str
    message: str
    until: float


class DeviceHealths:
    def __init__(self) -> None:
        self._reports: dict[Key, DeviceHealth] = {}

    def update(self, devices: Iterable[Report], now: float) -> set[Key]:
        """Returns the devices whose health changed."""
        changed = set()
        for report in devices:
            key = report.device.pool_name, report.device.device_name
            if key not in self._reports and len(self._reports) >= MOST_DEVICES:
                continue
            timeout = report.health_check_timeout_seconds
            status = _NAMES.get(report.health, UNKNOWN)
            health = DeviceHealth(status, report.message[:MOST_MESSAGE], now + (timeout if timeout > 0 else TIMEOUT))
            before = self._reports.get(key)
            if before is None or before[:2] != health[:2]:
                changed.add(key)
            self._reports[key] = health
        return changed

    def expire(self, now: float) -> set[Key]:
        """Forget expired reports; returns their devices."""
        expired = {key for key, health in self._reports.items() if health.until <= now}
        for key in expired:
            del self._reports[key]
        return expired

    def clear(self) -> set[Key]:
        known = set(self._reports)
        self._reports.clear()
        return known

    def get(self, pool: str, device: str) -> DeviceHealth | None:
        return self._reports.get((pool, device))

    @property
    def next(self) -> float | None:
        """The time when the next report expires."""
        return min((health.until for health in self._reports.values()), default=None)
