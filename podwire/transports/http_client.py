"""HTTP for the API client, on aiohttp: kept-alive connections, streams, TLS, the caller's identity on every request.

Proxies and passwords from the environment are not looked at.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from podwire.interfaces import Tap
from podwire.protocols.k8sapi.client_side import Http, Incoming, Interrupted, Reply, Unreachable
from podwire.protocols.k8sapi.client_side.http import Query
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.transports.credentials import ssl_context, token_source
from podwire.transports.tapped_http import TappedHttp

CONNECT_SECONDS = 10.0

IDLE_SECONDS = 30.0
"""Idle connections are dropped before the server would, so that no request meets a closing one."""

MOST_AT_ONCE = 8
"""Requests on their way; others wait for a connection that is open already, which is quicker than another handshake.
Streams are not counted: they stay."""

SILENCE_SECONDS = 30
"""A server that acknowledges nothing for so long is gone."""


@contextlib.asynccontextmanager
async def connect(
    access: Access, *, user_agent: str = "podwire", tap: Tap | None = None, callee: str = "server"
) -> AsyncIterator[Http]:
    """A client for this server and identity, closed at the end. Nothing is sent before the first request.

    A tap is told of every request; the caller is what the client calls itself.
    """
    connector = aiohttp.TCPConnector(
        limit=0, ssl=ssl_context(access) or True, keepalive_timeout=IDLE_SECONDS, socket_factory=attentive_socket
    )
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    # The answers of a near server are not worth packing; a watch must not be held back by a compressor.
    headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as session:
        client = HttpClient(session, access.server, token_source(access), access.server_name)
        yield client if tap is None else TappedHttp(client, tap, caller=user_agent, callee=callee)


class HttpClient:
    """The client's HTTP port; see podwire.protocols.k8sapi.client_side."""

    def __init__(
        self, session: aiohttp.ClientSession, server: str, token: Callable[[], str], server_name: str = ""
    ) -> None:
        self._session = session
        self._server = server
        self._token = token
        self._server_name = server_name or None
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        with _errors(method, path):
            async with self._turns, self._send(method, path, query, headers, body) as response:
                return Reply(response.status, _lower(response), await response.read())

    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None
    ) -> Incoming:
        with _errors(method, path):
            return _Incoming(await self._send(method, path, query, headers, b""), f"{method} {path}")

    def _send(
        self, method: str, path: str, query: Query, headers: Mapping[str, str] | None, body: bytes
    ) -> Any:  # aiohttp's request context: awaitable and an async context manager
        sent = dict(headers or {})
        if token := self._token():
            sent["Authorization"] = f"Bearer {token}"
        url = f"{self._server}{path}?{urlencode(query)}" if query else f"{self._server}{path}"
        return self._session.request(
            method,
            URL(url, encoded=True),
            headers=sent,
            data=body or None,
            allow_redirects=False,
            server_hostname=self._server_name,
        )


class _Incoming:
    def __init__(self, response: aiohttp.ClientResponse, about: str) -> None:
        self._response = response
        self._about = about

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return _lower(self._response)

    async def read(self) -> bytes:
        with _errors(self._about):
            return await self._response.content.readany()

    def close(self) -> None:
        self._response.close()


def _lower(response: aiohttp.ClientResponse) -> Mapping[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


@contextlib.contextmanager
def _errors(*about: str) -> Iterator[None]:
    """aiohttp's errors as the client's chair knows them: before anything was sent, or after."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
        raise Unreachable(f"{' '.join(about)}: {error}") from error
    except (aiohttp.ClientError, ConnectionError) as error:
        raise Interrupted(f"{' '.join(about)}: {error or type(error).__name__}") from error


def attentive_socket(address: Any) -> socket.socket:
    """Notices a peer that vanished without a word."""
    family, type_, protocol, _, _ = address
    sock = socket.socket(family, type_, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_SECONDS // 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENCE_SECONDS // 6)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_SECONDS * 1000)
    return sock
