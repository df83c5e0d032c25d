"""Writes `status.devices` of claims: in the background, retried until the write succeeds.

Of several states of one claim only the newest is written.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.dradriver.claims.allocations import ClaimRef
from podwire.dradriver.names import CLAIMS, COMPONENT, DRIVER
from podwire.interfaces import Clock
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object
from podwire.tasks.backoff import Pauses

_log = logging.getLogger("podwire.dradriver")

READY, NETWORK_READY = "Ready", "NetworkReady"
LONGEST_MESSAGE = 4096
_RETRIED = frozenset({408, 409, 429})
"""Client errors that another attempt may not meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusLimits:
    """Seconds."""

    delay: float = 0.005
    """Before a status is written: the call that attaches the device is answered first."""
    first_pause: float = 0.1
    longest_pause: float = 10.0
    """Between attempts to write a status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The interface of a device in its pod."""

    interface: str
    mac: str
    ips: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Why the network of an attached device is not ready."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """The state of one device of a claim; without a network it is not in its pod."""

    pool: str
    device: str
    share_id: str
    reason: str
    """The reason of the conditions: one CamelCase word."""
    message: str
    network: Network | None = None
    network_failure: Condition | None = None


Times = Mapping[tuple[str, str, str, str, str], str]
"""Transition times by pool, device, share, type and status of a condition."""


def status_of(devices: Sequence[DeviceState], times: Times, now: float) -> list[Object]:
    """Returns this driver's part of a claim's `status.devices`."""
    return [_device(device, times, now) for device in devices]


def _device(state: DeviceState, times: Times, now: float) -> Object:
    status: dict[str, Any] = {"driver": DRIVER, "pool": state.pool, "device": state.device}
    if state.share_id:
        status["shareID"] = state.share_id
    status["conditions"] = [
        {
            "type": type_,
            "status": value,
            "reason": reason,
            "message": message[:LONGEST_MESSAGE],
            "lastTransitionTime": times.get((state.pool, state.device, state.share_id, type_, value), rfc3339(now)),
        }
        for type_, value, reason, message in _conditions(state)
    ]
    if state.network is not None:
        status["networkData"] = {
            "interfaceName": state.network.interface,
            "hardwareAddress": state.network.mac,
            "ips": list(state.network.ips[:16]),
        }
    return status


def _conditions(state: DeviceState) -> Iterator[tuple[str, str, str, str]]:
    """Yields type, status, reason, message. A device in its pod is Ready; NetworkReady needs carrier and lease, too."""
    status = "False" if state.network is None else "True"
    yield READY, status, state.reason, state.message
    if state.network_failure is not None:
        yield NETWORK_READY, "False", state.network_failure.reason, state.network_failure.message
    else:
        yield NETWORK_READY, status, state.reason, state.message


def times_in(claim: Object) -> Times:
    """Returns the transition times of a claim's present conditions."""
    return {
        (*_identity(device), condition["type"], condition["status"]): condition["lastTransitionTime"]
        for device in (claim.get("status") or {}).get("devices") or ()
        if device["driver"] == DRIVER
        for condition in device.get("conditions") or ()
    }


def _identity(device: Object) -> tuple[str, str, str]:
    return device["pool"], device["device"], device.get("shareID", "")


class Statuses:
    """Statuses that wait to be written."""

    def __init__(self, client: Client, clock: Clock, limits: StatusLimits | None = None) -> None:
        self._client, self._clock, self._limits = client, clock, limits or StatusLimits()
        self._queued: dict[str, tuple[ClaimRef, tuple[DeviceState, ...]]] = {}
        self._busy: set[str] = set()
        self._filled, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def put(self, claim: ClaimRef, devices: Sequence[DeviceState]) -> None:
        """Queues the state of all devices of a claim that are this driver's; never waits."""
        self._queued[claim.uid] = claim, tuple(devices)
        self._filled.set()
        self._idle.clear()

    @property
    def pending(self) -> int:
        """How many claims' statuses are not written yet."""
        return len(self._queued.keys() | self._busy)

    async def idle(self) -> None:
        """Waits until everything is written."""
        await self._idle.wait()

    async def run(self) -> None:
        """Writes until cancelled; claims concurrently, so that one that cannot be written does not delay others."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._filled.wait()
                await asyncio.sleep(self._limits.delay)
                self._filled.clear()
                for uid in self._queued.keys() - self._busy:
                    self._busy.add(uid)
                    group.create_task(self._write(uid), name=f"status of claim {uid}")

    async def _write(self, uid: str) -> None:
        pauses = Pauses(self._limits.first_pause, self._limits.longest_pause)
        try:
            while (queued := self._queued.pop(uid, None)) is not None:
                if await self._apply(*queued):
                    pauses.reset()
                    continue
                self._queued.setdefault(uid, queued)
                await asyncio.sleep(pauses.next())
        finally:
            self._busy.discard(uid)
            if not self.pending:
                self._idle.set()

    async def _apply(self, claim: ClaimRef, devices: Sequence[DeviceState]) -> bool:
        """Whether nothing is left to do: the status is written, or never will be."""
        fields = {"claim": f"{claim.namespace}/{claim.name}"}
        try:
            present = await self._client.get(CLAIMS, claim.name, claim.namespace)
            if present["metadata"]["uid"] != claim.uid:
                return True  # another claim of the same name
            await self._client.apply(
                _applied(claim, _still_allocated(present, devices), times_in(present), self._clock.wall()),
                field_manager=COMPONENT,
                subresource="status",
                force=True,
            )
        except ApiError as error:
            if error.code == 404:
                return True
            if error.code < 500 and error.code not in _RETRIED:
                _log.warning("API server rejected claim status", extra={**fields, "error": str(error)})
                return True
            _log.info("cannot write claim status yet", extra={**fields, "error": str(error)})
            return False
        except ClientError as error:
            _log.info("cannot write claim status without API server", extra={**fields, "error": str(error)})
            return False
        return True


def _still_allocated(claim: Object, devices: Sequence[DeviceState]) -> list[DeviceState]:
    """Filters the devices: the API server rejects a status of devices that are not allocated."""
    results = (((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results") or ()
    allocated = {_identity(result) for result in results if result["driver"] == DRIVER}
    return [device for device in devices if (device.pool, device.device, device.share_id) in allocated]


def _applied(claim: ClaimRef, devices: Sequence[DeviceState], times: Times, now: float) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
        "status": {"devices": status_of(devices, times, now)},
    }
