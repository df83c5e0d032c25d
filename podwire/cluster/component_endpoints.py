"""The HTTPS endpoints of a component of the control plane: /metrics, /healthz, /livez and /readyz.

Health is for everybody; metrics need the right to `get` the URL /metrics, which the API server is asked about.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from podwire.interfaces import Clock
from podwire.linux.proc.own_usage import own_usage
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.client_side.access_reviews import AccessReviews
from podwire.protocols.k8sapi.kubeconfig import NO_PEM, Pem
from podwire.protocols.k8sapi.server_side import Answer, Request, Response
from podwire.protocols.k8sapi.status import ApiError, Reason, method_not_allowed
from podwire.protocols.prometheus import CONTENT_TYPE, Metrics
from podwire.transports import http_server, tls

_log = logging.getLogger("podwire.endpoints")

TEXT = "text/plain; charset=utf-8"
GRACE = 0.5
"""Seconds for requests in flight when the server stops."""
HEALTH = ("/healthz", "/livez", "/readyz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a component serves, and with which certificate."""

    port: int
    certificate: Path
    """With its key, or beside it."""
    key: Path
    address: str = "127.0.0.1"
    client_ca: Pem = NO_PEM
    """The CA of callers with a certificate."""


@contextlib.asynccontextmanager
async def serving(endpoint: Endpoint | None, api: Client, metrics: Metrics, clock: Clock) -> AsyncIterator[int | None]:
    """Serves while the context is open; yields the port, or None. A port that is taken is logged: the component works
    without its metrics."""
    metrics.collect_values(own_usage)
    if endpoint is None:
        yield None
        return
    handler = ComponentEndpoints(metrics, AccessReviews(api, clock))
    try:
        context = await asyncio.to_thread(
            tls.ServingContext,
            endpoint.certificate,
            endpoint.key,
            endpoint.client_ca.file or None,
            client_ca_data=endpoint.client_ca.text or None,
        )
        server = await http_server.serve(handler.handle, host=endpoint.address, port=endpoint.port, ssl_context=context)
    except OSError as error:
        _log.warning(
            "cannot serve component metrics",
            extra={"address": endpoint.address, "port": endpoint.port, "error": str(error)},
        )
        yield None
        return
    try:
        yield server.port
    finally:
        await server.close(GRACE)


class ComponentEndpoints:
    """Answers requests."""

    def __init__(self, metrics: Metrics, reviews: AccessReviews) -> None:
        self._metrics = metrics
        self._reviews = reviews

    async def handle(self, request: Request) -> Answer:
        """Returns the answer; errors are answers, too."""
        try:
            return await self._answer(request)
        except ApiError as error:
            return Response(status=error.code, body=f"{error.message}\n".encode(), content_type=TEXT)

    async def _answer(self, request: Request) -> Response:
        path = request.path.rstrip("/") or "/"
        if path in HEALTH:
            return Response(status=200, body=b"ok", content_type=TEXT)
        caller = await self._reviews.caller(request)
        request.trust()
        verb = request.method.lower()
        attributes = {"path": path, "verb": verb}
        if denial := await self._reviews.denial(caller, {"nonResourceAttributes": attributes}):
            raise ApiError(
                Reason.FORBIDDEN, f'forbidden: User "{caller.name}" cannot {verb} path "{path}"{denial.rstrip(".")}'
            )
        if path != "/metrics":
            raise ApiError(Reason.NOT_FOUND, "404 page not found")
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        return Response(status=200, body=self._metrics.text().encode(), content_type=CONTENT_TYPE)
