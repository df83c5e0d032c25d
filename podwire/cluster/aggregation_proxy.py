"""The API server's client for aggregated API servers: TLS with the client certificate of the front proxy.

The certificate is signed by a CA of its own, so that no client certificate of a user is taken for it.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Sequence

from podwire.apiserver import Pki
from podwire.apiserver.ports import AggregatedServer, Unreachable
from podwire.protocols.k8sapi.kubeconfig import Access, BadKubeconfig, Pem
from podwire.protocols.k8sapi.server_side import Answer, Request, Response, Stream
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials
from podwire.transports.http_forward import Forwarder, forwarder

CLIENT = "front-proxy-client"
FETCH_SECONDS = 5.0
MAX_DISCOVERY = 4 << 20
MOST_CONTEXTS = 64


@contextlib.asynccontextmanager
async def aggregation_proxy(pki: Pki) -> AsyncIterator["AggregationProxy"]:
    """`pki` is the front proxy's own."""
    async with forwarder() as forward:
        yield AggregationProxy(forward, pki)


class AggregationProxy:
    """Implements podwire.apiserver.ports.AggregatedServers."""

    def __init__(self, forward: Forwarder, pki: Pki) -> None:
        self._forward = forward
        self._pki = pki
        self._contexts: dict[tuple[str, bool], ssl.SSLContext | None] = {}
        self._renew_at = 0.0

    @property
    def authority_pem(self) -> str:
        return self._pki.authority_pem.decode()

    async def forward(
        self, server: AggregatedServer, path: str, request: Request, headers: Sequence[tuple[str, str]]
    ) -> Answer:
        host = f"[{server.address}]" if ":" in server.address else server.address
        url = f"https://{host}:{server.port}{path}"
        context = self._context(server)
        return await self._forward.forward(
            url, request, prefix="", context=context, server_name=server.server_name, headers=headers
        )

    async def fetch(self, server: AggregatedServer, path: str, headers: Sequence[tuple[str, str]]) -> tuple[int, bytes]:
        request = Request(method="GET", path=path, headers={"accept": "application/json"})
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                answer = await self.forward(server, path, request, headers)
                if isinstance(answer, Response):
                    return answer.status, answer.body
                if not isinstance(answer, Stream):
                    raise Unreachable("the server switched protocols")
                return answer.status, await _whole(answer)
        except TimeoutError:
            raise Unreachable("context deadline exceeded") from None
        except ApiError as error:
            raise Unreachable(error.message) from error
        except RuntimeError as error:  # the client is closed: this server stops
            raise Unreachable(str(error)) from error

    def _context(self, server: AggregatedServer) -> ssl.SSLContext | None:
        if (now := time.time()) >= self._renew_at or len(self._contexts) >= MOST_CONTEXTS:
            self._contexts.clear()
            self._certificate, self._key = self._pki.issue_client(CLIENT)
            self._renew_at = now + self._pki.lifetime.total_seconds() / 2
        wanted = (server.ca, server.insecure)
        if wanted not in self._contexts:
            access = Access(
                server="https://aggregated",
                ca=Pem(server.ca) if server.ca else Pem(),
                certificate=Pem(self._certificate.decode()),
                key=Pem(self._key.decode()),
                verify=not server.insecure,
            )
            try:
                self._contexts[wanted] = credentials.ssl_context(access)
            except BadKubeconfig as error:
                raise Unreachable(str(error)) from error
        return self._contexts[wanted]


async def _whole(answer: Stream) -> bytes:
    body = b""
    async for chunk in answer.chunks:
        body += chunk
        if len(body) > MAX_DISCOVERY:
            raise Unreachable(f"the answer has more than {MAX_DISCOVERY} bytes")
    return body
