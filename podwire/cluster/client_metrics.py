"""Counts calls where they leave a process: requests to the API server, and calls of the container runtime.

The components themselves count nothing of this; the names are upstream's.
"""

import functools
import re
import time
from collections.abc import AsyncGenerator, Mapping
from typing import TypeVar

from google.protobuf.message import Message

from podwire.protocols.grpc_methods import ServerStream, Unary
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.k8sapi.client_side import ClientError, Http, Incoming, Reply
from podwire.protocols.k8sapi.client_side.http import Query
from podwire.protocols.prometheus import Metrics
from podwire.transports.grpc_client import GrpcClient

CLIENT_BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
RUNTIME_BOUNDS = tuple(round(0.005 * 2.5**step, 6) for step in range(14))

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class MeteredHttp:
    """A client whose requests are counted: `rest_client_*`."""

    def __init__(self, http: Http, metrics: Metrics, host: str) -> None:
        self._http = http
        self._host = host
        self._requests = metrics.counter(
            "rest_client_requests_total", "Requests to the API server", "code", "host", "method"
        )
        self._seconds = metrics.histograms(
            "rest_client_request_duration_seconds", "Time of an answer", "host", "verb", bounds=CLIENT_BOUNDS
        )

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        began = time.monotonic()
        try:
            reply = await self._http.request(method, path, query=query, headers=headers, body=body)
        except ClientError:
            self._requests.inc("<error>", self._host, method)
            raise
        self._requests.inc(str(reply.status), self._host, method)
        self._seconds.observe(time.monotonic() - began, self._host, method)
        return reply

    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None
    ) -> Incoming:
        try:
            incoming = await self._http.stream(method, path, query=query, headers=headers)
        except ClientError:
            self._requests.inc("<error>", self._host, method)
            raise
        self._requests.inc(str(incoming.status), self._host, method)
        return incoming


def host_of(server: str) -> str:
    """Returns the host and port of a URL."""
    return server.partition("://")[2].partition("/")[0]


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
            bounds=RUNTIME_BOUNDS,
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
