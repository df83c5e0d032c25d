"""What claims' statuses tell of their devices: true and false, and written until it is.

In the background: nobody waits for it. Of several states of one claim only the newest is written.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.dradriver.claims.allocations import ClaimRef
from podwire.dradriver.names import CLAIMS, COMPONENT, DRIVER
from podwire.dradriver.ports import Api
from podwire.interfaces import Clock
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

_log = logging.getLogger("podwire.dradriver")

READY, NETWORK_READY = "Ready", "NetworkReady"
MANNERS = 0.005
"""Seconds before anything is written: whoever waits for the device itself is answered first."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
LONGEST_MESSAGE = 4096
_LATER = frozenset({408, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Where a device is in its pod."""

    interface: str
    mac: str
    ips: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """What keeps a device that is in its pod from being of use there."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """One device of a claim; without a network it is not in its pod."""

    pool: str
    device: str
    share_id: str
    reason: str
    """One word, as machines read it."""
    message: str
    network: Network | None = None
    lack: Lack | None = None


Times = Mapping[tuple[str, str, str, str, str], str]
"""By device, type and status of a condition: since when it is so."""


def status_of(devices: Sequence[DeviceState], times: Times, now: float) -> list[Object]:
    """`status.devices` of a claim, this driver's part."""
    return [_device(each, times, now) for each in devices]


def _device(state: DeviceState, times: Times, now: float) -> Object:
    told: dict[str, Any] = {"driver": DRIVER, "pool": state.pool, "device": state.device}
    if state.share_id:
        told["shareID"] = state.share_id
    told["conditions"] = [
        {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message[:LONGEST_MESSAGE],
            "lastTransitionTime": times.get((state.pool, state.device, state.share_id, type_, status), rfc3339(now)),
        }
        for type_, status, reason, message in _conditions(state)
    ]
    if state.network is not None:
        found = state.network
        told["networkData"] = {
            "interfaceName": found.interface,
            "hardwareAddress": found.mac,
            "ips": list(found.ips[:16]),
        }
    return told


def _conditions(state: DeviceState) -> Iterator[tuple[str, str, str, str]]:
    """A device that is in its pod is ready; whether its network is, is another question."""
    status = "False" if state.network is None else "True"
    yield READY, status, state.reason, state.message
    if state.lack is not None:
        yield NETWORK_READY, "False", state.lack.reason, state.lack.message
    else:
        yield NETWORK_READY, status, state.reason, state.message


def times_in(claim: Object) -> Times:
    """Since when the conditions of a claim as it is now are so."""
    return {
        (each["pool"], each["device"], each.get("shareID", ""), condition["type"], condition["status"]): condition[
            "lastTransitionTime"
        ]
        for each in (claim.get("status") or {}).get("devices") or ()
        if each["driver"] == DRIVER
        for condition in each.get("conditions") or ()
    }


class Statuses:
    def __init__(self, api: Api, clock: Clock) -> None:
        self._api, self._clock = api, clock
        self._wanted: dict[str, tuple[ClaimRef, tuple[DeviceState, ...]]] = {}
        self._busy: set[str] = set()
        self._filled, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def tell(self, claim: ClaimRef, devices: Sequence[DeviceState]) -> None:
        """All devices of a claim that are this driver's."""
        self._wanted[claim.uid] = claim, tuple(devices)
        self._filled.set()
        self._idle.clear()

    @property
    def waiting(self) -> int:
        """So many claims' statuses are not written yet."""
        return len(self._wanted.keys() | self._busy)

    async def idle(self) -> None:
        """Return when nothing is left to be written."""
        await self._idle.wait()

    async def run(self) -> None:
        """Work until cancelled: claims side by side, for one that cannot be written keeps no other waiting."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._filled.wait()
                await asyncio.sleep(MANNERS)
                self._filled.clear()
                for uid in self._wanted.keys() - self._busy:
                    self._busy.add(uid)
                    group.create_task(self._write(uid), name=f"status of claim {uid}")

    async def _write(self, uid: str) -> None:
        pause = FIRST_PAUSE
        try:
            while (wanted := self._wanted.pop(uid, None)) is not None:
                if await self._written(*wanted):
                    pause = FIRST_PAUSE
                    continue
                self._wanted.setdefault(uid, wanted)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
        finally:
            self._busy.discard(uid)
            if not self.waiting:
                self._idle.set()

    async def _written(self, claim: ClaimRef, devices: Sequence[DeviceState]) -> bool:
        """Whether nothing is left to do: it is written, or never will be."""
        about = {"claim": f"{claim.namespace}/{claim.name}"}
        try:
            found = await self._api.get(CLAIMS, claim.name, claim.namespace)
            if found["metadata"]["uid"] != claim.uid:
                return True  # another one of the same name
            await self._api.apply(
                _applied(claim, _still_allocated(found, devices), times_in(found), self._clock.wall()),
                field_manager=COMPONENT,
                subresource="status",
                force=True,
            )
        except ApiError as error:
            if error.code == 404:
                return True
            if error.code < 500 and error.code not in _LATER | {409}:
                _log.warning("a claim's status is refused", extra={**about, "why": str(error)})
                return True
            _log.info("a claim's status is not written yet", extra={**about, "why": str(error)})
            return False
        except ClientError as error:
            _log.info("a claim's status is not written yet", extra={**about, "why": str(error)})
            return False
        return True


def _still_allocated(claim: Object, devices: Sequence[DeviceState]) -> list[DeviceState]:
    """The API server takes nothing about others."""
    results = (((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results") or ()
    there = {(each["pool"], each["device"], each.get("shareID", "")) for each in results if each["driver"] == DRIVER}
    return [each for each in devices if (each.pool, each.device, each.share_id) in there]


def _applied(claim: ClaimRef, devices: Sequence[DeviceState], times: Times, now: float) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
        "status": {"devices": status_of(devices, times, now)},
    }
