"""The driver's calls, in both versions: every claim that a kubelet asks for is answered, each by itself."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

from podwire.dradriver.claims.allocations import ClaimRef
from podwire.protocols import grpc_call
from podwire.protocols.dra import dra_v1_pb2, dra_v1beta1_pb2, health_v1_pb2, health_v1alpha1_pb2
from podwire.protocols.dra.methods import (
    PLUGIN_V1,
    PLUGIN_V1BETA1,
    PREPARE_V1,
    PREPARE_V1BETA1,
    UNPREPARE_V1,
    UNPREPARE_V1BETA1,
    WATCH_HEALTH_V1,
    WATCH_HEALTH_V1ALPHA1,
)
from podwire.protocols.grpc_methods import Handler, Method

TABLE: tuple[Method, ...] = (*PLUGIN_V1, *PLUGIN_V1BETA1, WATCH_HEALTH_V1, WATCH_HEALTH_V1ALPHA1)

LONGEST_MESSAGE = 1024
"""Of a device's health."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A device that is prepared, as the kubelet learns of it."""

    request: str
    pool: str
    device: str
    share_id: str
    cdi: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How a device is."""

    device: str
    healthy: bool
    message: str
    since: float
    """Seconds since the epoch."""


class Claims(Protocol):
    """Prepares claims, and takes that back; what went wrong with one is told in words."""

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, tuple[Ready, ...] | str]: ...

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]: ...


class Health:
    """What all streams are told: the whole list at first and whenever something changes, and now and then."""

    def __init__(self, pool: str, look: Callable[[], Sequence[Told]]) -> None:
        self._pool, self._look = pool, look
        self._changed = asyncio.Event()

    REPEAT_SECONDS = 10.0
    """Kubelets take a device for unknown that they heard nothing of for three times as long."""

    def changed(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def stream(self, pb: ModuleType) -> AsyncIterator[Any]:
        while True:
            changed = self._changed
            yield pb.NodeWatchResourcesResponse(devices=[self._device(pb, each) for each in self._look()])
            try:
                async with asyncio.timeout(self.REPEAT_SECONDS):
                    await changed.wait()
            except TimeoutError:
                continue

    def _device(self, pb: ModuleType, told: Told) -> Any:
        return pb.DeviceHealth(
            device=pb.DeviceIdentifier(pool_name=self._pool, device_name=told.device),
            health=pb.HEALTHY if told.healthy else pb.UNHEALTHY,
            last_updated_time=int(told.since),
            message=told.message.encode()[:LONGEST_MESSAGE].decode(errors="ignore"),
        )


def handlers(claims: Claims, health: Health) -> Mapping[str, Handler]:
    """By path: both versions have methods of the same names."""
    return {
        PREPARE_V1.path: _prepares(claims, dra_v1_pb2, shares=True),
        PREPARE_V1BETA1.path: _prepares(claims, dra_v1beta1_pb2, shares=False),
        UNPREPARE_V1.path: _unprepares(claims, dra_v1_pb2),
        UNPREPARE_V1BETA1.path: _unprepares(claims, dra_v1beta1_pb2),
        WATCH_HEALTH_V1.path: lambda _request: health.stream(health_v1_pb2),
        WATCH_HEALTH_V1ALPHA1.path: lambda _request: health.stream(health_v1alpha1_pb2),
    }


def _prepares(claims: Claims, pb: ModuleType, *, shares: bool) -> Handler:
    async def prepare(request: Any) -> Any:
        """A kubelet that gives up asks again; what was begun is done to its end meanwhile."""
        results = await grpc_call.current().uncancelled(claims.prepare(_refs(request)))
        response = pb.NodePrepareResourcesResponse()
        for uid, result in results.items():
            answer = response.claims[uid]
            if isinstance(result, str):
                answer.error = result
                continue
            for each in result:
                device = answer.devices.add(
                    request_names=[each.request], pool_name=each.pool, device_name=each.device, cdi_device_ids=each.cdi
                )
                if shares and each.share_id:
                    device.share_id = each.share_id
        return response

    return prepare


def _unprepares(claims: Claims, pb: ModuleType) -> Handler:
    async def unprepare(request: Any) -> Any:
        results = await grpc_call.current().uncancelled(claims.unprepare(_refs(request)))
        response = pb.NodeUnprepareResourcesResponse()
        for uid, error in results.items():
            response.claims[uid].error = error
        return response

    return unprepare


def _refs(request: Any) -> list[ClaimRef]:
    return [ClaimRef(namespace=each.namespace, name=each.name, uid=each.uid) for each in request.claims]
