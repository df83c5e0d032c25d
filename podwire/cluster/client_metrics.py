"""Counts the requests of a component to the API server, with upstream's names."""

import time
from collections.abc import Mapping

from podwire.protocols.k8sapi.client_side import ClientError, Http, Incoming, Reply
from podwire.protocols.k8sapi.client_side.http import Query
from podwire.protocols.prometheus import Metrics

BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class MeteredHttp:
    """A client whose requests are counted: `rest_client_*`."""

    def __init__(self, http: Http, metrics: Metrics, host: str) -> None:
        self._http = http
        self._host = host
        self._requests = metrics.counter(
            "rest_client_requests_total", "Requests to the API server", "code", "host", "method"
        )
        self._seconds = metrics.histograms(
            "rest_client_request_duration_seconds", "Time of an answer", "host", "verb", bounds=BOUNDS
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
