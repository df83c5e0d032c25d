"""Calls webhooks: finds where they are, posts a review, and reads the answer; errors in the words of Go's client.

Admission and CRD conversion use the same form of reference, a URL or a Service.
"""

from typing import Any

import msgspec

from podwire.apiserver.ports import HttpsClient, HttpsTarget, Unreachable
from podwire.apiserver.service_endpoints import ServiceEndpoints
from podwire.kinds.policies.webhook import ClientConfig
from podwire.protocols.k8sapi.status import ApiError


class CallFailed(Exception):
    """A webhook was not reached or its answer is unusable; `code` is the HTTP code for metrics."""

    def __init__(self, message: str, code: int = 503) -> None:
        super().__init__(message)
        self.code = code


class WebhookCalls:
    """Posts reviews to webhooks."""

    def __init__(self, client: HttpsClient | None, endpoints: ServiceEndpoints) -> None:
        self._client = client
        self._endpoints = endpoints

    async def post(self, where: ClientConfig, review: bytes, seconds: float) -> Any:
        """Returns the decoded answer of a webhook. Raises CallFailed."""
        if self._client is None:
            raise CallFailed("this API server has no client for webhooks")
        url = f"{_url(where)}?timeout={seconds:g}s"
        try:
            target = await self._target(where, url)
            status, body = await self._client.post(target, review, seconds)
        except Unreachable as error:
            raise CallFailed(f'Post "{url}": {error}') from error
        if not 200 <= status < 300:
            raise CallFailed(_refused(status, body), status)
        try:
            return msgspec.json.decode(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise CallFailed(f"couldn't get version/kind; json parse error: {error}") from error

    async def _target(self, where: ClientConfig, url: str) -> HttpsTarget:
        """Returns where to connect to. Raises Unreachable for a Service without a ready endpoint."""
        if where.service is None:
            return HttpsTarget(url=url, ca=where.ca)
        namespace, name, port, _ = where.service
        try:
            endpoint = await self._endpoints.find(namespace, name, port)
        except ApiError as error:
            raise Unreachable(error.message) from error
        return HttpsTarget(url=url, ca=where.ca, address=endpoint.address, port=endpoint.port)


def _url(where: ClientConfig) -> str:
    if where.service is None:
        return where.url
    namespace, name, port, path = where.service
    return f"https://{name}.{namespace}.svc:{port}/{path.removeprefix('/')}"


def _refused(status: int, body: bytes) -> str:
    """Returns the error of an HTTP status as client-go words it."""
    if status == 404:
        return "the server could not find the requested resource"
    text = body[:2048].decode(errors="replace").strip() or "unknown"
    if status >= 500:
        return f'an error on the server ("{text}") has prevented the request from succeeding'
    return f'the server rejected our request for an unknown reason ("{text}")'
