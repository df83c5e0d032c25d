"""The proxy's answers about its health, in kube-proxy's words; and those about Services, for their load balancers.

A Service with `externalTrafficPolicy: Local` has a health check port: a load balancer asks every node there, and sends
traffic only to nodes with an endpoint.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from podwire.interfaces import Clock
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.server_side import Request, Response
from podwire.protocols.prometheus import CONTENT_TYPE
from podwire.proxy.metrics import ProxyMetrics
from podwire.proxy.values import Name

_log = logging.getLogger("podwire.proxy")

TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
LATE = 60.0
"""Seconds after which a change that the kernel does not know is too late."""
_NO_SNIFF = ("X-Content-Type-Options", "nosniff")
_WEIGHT = "X-Load-Balancing-Endpoint-Weight"
Handler = Callable[[Request], Awaitable[Response]]


class Listening(Protocol):
    async def close(self, grace: float = ...) -> None: ...


Listen = Callable[[int, Handler], Awaitable[Listening]]
"""Answers HTTP at a port of all addresses. Raises OSError."""


class Health:
    """How the proxy is doing."""

    def __init__(self, clock: Clock, metrics: ProxyMetrics) -> None:
        self._clock, self._metrics = clock, metrics
        self._queued: float | None = None
        self._updated = clock.wall()
        self.eligible = False
        """Whether the node exists and is to stay."""

    def queued(self) -> None:
        if self._queued is None:
            self._queued = self._clock.monotonic()

    def updated(self) -> None:
        self._queued, self._updated = None, self._clock.wall()

    @property
    def healthy(self) -> bool:
        return self._queued is None or self._clock.monotonic() - self._queued < LATE

    async def answer(self, request: Request) -> Response:
        """Answers /healthz and /livez."""
        if request.path not in ("/healthz", "/livez"):
            return Response(status=404, body=b"404 page not found\n", content_type="text/plain; charset=utf-8")
        is_healthz = request.path == "/healthz"
        healthy = self.healthy and (self.eligible or not is_healthz)
        status, now = 200 if healthy else 503, self._clock.wall()
        (self._metrics.healthz if is_healthz else self._metrics.livez).inc(str(status))
        updated = rfc3339(now if healthy else self._updated)
        family = {"lastUpdated": rfc3339(self._updated), "healthy": self.healthy}
        body = {
            "lastUpdated": updated,
            "currentTime": rfc3339(now),
            **({"nodeEligible": self.eligible} if is_healthz else {}),
            "healthy": self.healthy,
            "status": {"IPv4": family, "IPv6": family},
        }
        return Response(status=status, body=msgspec.json.encode(body), headers=(_NO_SNIFF,))

    async def answer_metrics(self, request: Request) -> Response:
        """Answers /metrics, /proxyMode and /healthz."""
        if request.path == "/metrics":
            return Response(status=200, body=self._metrics.metrics.text().encode(), content_type=CONTENT_TYPE)
        if request.path == "/proxyMode":
            return Response(status=200, body=b"nftables", content_type="text/plain; charset=utf-8")
        return await self.answer(request)


class HealthPorts:
    """The health check ports of Services: one server for each."""

    def __init__(self, listen: Listen, health: Health) -> None:
        self._listen, self._health = listen, health
        self._ports: Mapping[int, tuple[Name, int]] = {}
        self._servers: dict[int, tuple[Name, Listening]] = {}
        self._counts: dict[Name, int] = {}
        self._failed: dict[int, Name] = {}
        """Ports that others have; each is reported once."""
        self._lock = asyncio.Lock()

    async def sync(self, ports: Mapping[int, tuple[Name, int]]) -> None:
        """Opens and closes servers; `ports` has the Service of each, and its ready endpoints on this node."""
        self._counts, self._ports = dict(ports.values()), ports
        async with self._lock:
            for port, (name, server) in list(self._servers.items()):
                if port not in ports or ports[port][0] != name:
                    del self._servers[port]
                    await server.close(0.1)
            await self._open_missing()

    async def keep_trying(self, seconds: float) -> None:
        """Opens ports that others had, as soon as they are free; works until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            async with self._lock:
                await self._open_missing()

    async def _open_missing(self) -> None:
        for port, (name, _) in self._ports.items():
            if port in self._servers:
                continue
            try:
                self._servers[port] = name, await self._listen(port, self._handler(name))
                self._failed.pop(port, None)
            except OSError as error:
                if self._failed.get(port) != name:
                    _log.warning(
                        "cannot listen at the health check port of a Service yet",
                        extra={"service": "/".join(name), "port": port, "error": str(error)},
                    )
                self._failed[port] = name

    async def close(self) -> None:
        await self.sync({})

    def _handler(self, name: Name) -> Handler:
        async def answer(_request: Request) -> Response:
            count, healthy = self._counts.get(name, 0), self._health.healthy
            namespace, service = name
            body = {
                "service": {"namespace": namespace, "name": service},
                "localEndpoints": count,
                "serviceProxyHealthy": healthy,
            }
            return Response(
                status=200 if count and healthy else 503,
                body=msgspec.json.format(msgspec.json.encode(body), indent=4),
                headers=(_NO_SNIFF, (_WEIGHT, str(count))),
            )

        return answer
