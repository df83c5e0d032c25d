"""The API server's client for webhooks."""

import contextlib
from collections.abc import AsyncIterator

from podwire.apiserver.ports import HttpsTarget, Unreachable
from podwire.transports.https_client import Failed, HttpsClient, https_client


@contextlib.asynccontextmanager
async def webhook_client() -> AsyncIterator["WebhookClient"]:
    async with https_client() as client:
        yield WebhookClient(client)


class WebhookClient:
    """Implements podwire.apiserver.ports.HttpsClient."""

    def __init__(self, client: HttpsClient) -> None:
        self._client = client

    async def post(self, target: HttpsTarget, body: bytes, seconds: float) -> tuple[int, bytes]:
        try:
            return await self._client.post(
                target.url, body, seconds, ca=target.ca, address=target.address, port=target.port
            )
        except Failed as error:
            raise Unreachable(str(error)) from error
