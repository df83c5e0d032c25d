"""Calls to the runtime that create something, and the hand-over between the start and the end of a pod.

A runtime goes on with a call whose caller has left, and lists what it creates only when that is complete. So the end of
a pod that begins while such a call is in flight would find nothing to remove, and leave what the call creates without
an owner. Therefore these calls go on when the sync that made them is cancelled, and the pod's end begins when they have
returned, or, for a runtime that hangs, after its grace period. What such a runtime creates even later is an orphan:
`pod_workers.py` removes it.
"""

import asyncio
import logging
from typing import Any, TypeVar

from google.protobuf.message import Message

from podwire.kubelet.ports import Cri
from podwire.protocols.grpc_methods import Unary
from podwire.protocols.grpc_status import RpcError
from podwire.tasks.uncancelled import Uncancelled

log = logging.getLogger(__name__)

Asked = TypeVar("Asked", bound=Message)
Answered = TypeVar("Answered", bound=Message)


class CreatingCalls:
    """The calls of all pods. Must be closed."""

    def __init__(self, cri: Cri) -> None:
        self._cri = cri
        self._uncancelled = Uncancelled()
        self._in_flight: dict[asyncio.Task[Any], tuple[str, str]] = {}
        """Each call with the uid of its pod and its name."""

    async def call(self, uid: str, method: Unary[Asked, Answered], request: Asked, seconds: float) -> Answered:
        """Call the runtime for a pod. A caller that is cancelled leaves, and the call goes on. Raises RpcError."""

        async def call_runtime() -> Answered | RpcError:
            try:
                return await self._cri.call(method, request, timeout=seconds)
            except RpcError as error:
                return error  # it belongs to the caller, who may have left

        task = self._uncancelled.start(call_runtime())
        self._in_flight[task] = uid, method.name
        task.add_done_callback(self._in_flight.pop)
        result = await self._uncancelled.result(task)
        if isinstance(result, RpcError):
            raise result
        return result

    def of_pod(self, uid: str) -> list[asyncio.Task[Any]]:
        """The calls in flight for a pod."""
        return [task for task, (owner, _) in self._in_flight.items() if owner == uid]

    def abandon(self, uid: str) -> None:
        """Cancel the calls in flight for a pod; what the runtime still creates is an orphan."""
        for task in self.of_pod(uid):
            log.warning("runtime does not return, leaving the call", extra={"call": self._in_flight[task][1]})
            task.cancel()

    async def close(self) -> None:
        """Cancel all calls in flight: the next kubelet finds what they create."""
        await self._uncancelled.drain(0.0)
