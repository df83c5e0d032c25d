"""Counts the calls of a kubelet to its container runtime, with upstream's names."""

import functools
import re
import time
from collections.abc import AsyncGenerator
from typing import TypeVar

from google.protobuf.message import Message

from podwire.protocols.grpc_methods import ServerStream, Unary
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.prometheus import Metrics
from podwire.transports.grpc_client import GrpcClient

BOUNDS = tuple(round(0.005 * 2.5**step, 6) for step in range(14))

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class MeteredRuntime:
    """A client of a container runtime whose calls are counted: `kubelet_runtime_operations_*`."""

    def __init__(self, client: GrpcClient, metrics: Metrics) -> None:
        self._client = client
        self._calls = metrics.counter("kubelet_runtime_operations_total", "Calls of the runtime", "operation_type")
        self._errors = metrics.counter(
            "kubelet_runtime_operations_errors_total", "Calls of the runtime that failed", "operation_type"
        )
        self._seconds = metrics.histograms(
            "kubelet_runtime_operations_duration_seconds",
            "Time of a call of the runtime",
            "operation_type",
            bounds=BOUNDS,
        )
        self.connections = client.connections

    async def call(
        self,
        method: Unary[RequestT, ResponseT],
        request: RequestT,
        *,
        timeout: float | None,  # noqa: ASYNC109 - travels to the peer
    ) -> ResponseT:
        name, began = operation(method.name), time.monotonic()
        self._calls.inc(name)
        try:
            return await self._client.call(method, request, timeout=timeout)
        except RpcError:
            self._errors.inc(name)
            raise
        finally:
            self._seconds.observe(time.monotonic() - began, name)

    def stream(
        self,
        method: ServerStream[RequestT, ResponseT],
        request: RequestT,
        *,
        timeout: float | None = None,
    ) -> AsyncGenerator[ResponseT, None]:
        self._calls.inc(operation(method.name))
        return self._client.stream(method, request, timeout=timeout)


@functools.cache
def operation(method: str) -> str:
    """Returns upstream's name of a call: RunPodSandbox is run_podsandbox, PullImage pull_image."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method.rpartition("/")[2]).lower()
    return words.replace("pod_sandbox", "podsandbox")
