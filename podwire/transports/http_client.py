"""HTTP for the API client, on aiohttp: keep-alive connections, streams, TLS, credentials on every request.

A proxy is used if the kubeconfig names one. Proxies and passwords from the environment are ignored.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

import aiohttp
from yarl import URL

from podwire.interfaces import Tap
from podwire.protocols.k8sapi.client_side import Http, Incoming, Interrupted, Reply, Unreachable
from podwire.protocols.k8sapi.client_side.http import Query
from podwire.protocols.k8sapi.kubeconfig import Access
from podwire.transports import http_websocket_client
from podwire.transports.http_credentials import HttpCredentials
from podwire.transports.http_websocket_client import FarSocket, HandshakeRefused, raise_for_refusal
from podwire.transports.tapped_http import TappedHttp
from podwire.transports.tls_reading import WholeResponse

UNAUTHORIZED = 401

CONNECT_SECONDS = 10.0

HANDSHAKE_SECONDS = 30.0
"""Until a WebSocket is open: an API server connects to a kubelet first, and that one to its runtime."""

IDLE_SECONDS = 30.0
"""Idle connections are closed before the server would do it, so that no request meets a closing connection."""

MAX_IN_FLIGHT = 8
"""Requests in flight; others wait for an open connection, which is faster than another handshake. Streams do not
count."""

SILENCE_SECONDS = 30
"""A server that acknowledges nothing for this long is considered dead."""


@contextlib.asynccontextmanager
async def connect(
    access: Access, *, user_agent: str = "podwire", tap: Tap | None = None, callee: str = "server"
) -> AsyncIterator[Http]:
    """Yields `opened`; a tap receives every request, and its caller is the user agent."""
    async with opened(access, user_agent=user_agent) as client:
        yield client if tap is None else TappedHttp(client, tap, caller=user_agent, callee=callee)


@contextlib.asynccontextmanager
async def opened(access: Access, *, user_agent: str = "podwire") -> AsyncIterator["HttpClient"]:
    """Yields a client for this server and identity. Nothing is sent before the first request.

    When the files of the access change, as at a rotation of certificates, later requests use the new ones.
    """
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, socket_factory=keepalive_socket)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    # Compressing the answers of a near server costs more than it saves, and would delay the frames of a watch.
    headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
    async with (
        contextlib.aclosing(HttpCredentials(access)) as credentials,
        aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            headers=headers,
            raise_for_status=raise_for_refusal,
            response_class=WholeResponse,
        ) as session,
    ):
        yield HttpClient(session, credentials)


class HttpClient:
    """Implements podwire.protocols.k8sapi.client_side.Http, and opens WebSockets."""

    def __init__(self, session: aiohttp.ClientSession, credentials: HttpCredentials) -> None:
        self._session = session
        self._credentials = credentials
        self._in_flight = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def log_in(self) -> None:
        """Gets credentials from a plugin or an issuer now, if the access has one. Raises NoCredentials."""
        await self._credentials.prepare()

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        with _errors(method, path):
            async with self._in_flight, await self._send(method, path, query, headers, body) as response:
                return Reply(response.status, _lower(response), await response.read())

    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None
    ) -> Incoming:
        with _errors(method, path):
            return _Incoming(await self._send(method, path, query, headers, b""), f"{method} {path}")

    async def websocket(
        self, path: str, *, query: Query = (), protocols: Iterable[str], seconds: float = HANDSHAKE_SECONDS
    ) -> FarSocket:
        """Opens a WebSocket. Raises HandshakeRefused, Unreachable and Interrupted."""
        with _errors("GET", path):
            issued = await self._credentials.prepare()
            try:
                return await self._dial(path, query, protocols, seconds)
            except HandshakeRefused as refused:
                if refused.status != UNAUTHORIZED or not await self._credentials.renew(issued):
                    raise
            return await self._dial(path, query, protocols, seconds)

    async def _dial(self, path: str, query: Query, protocols: Iterable[str], seconds: float) -> FarSocket:
        credentials = self._credentials
        try:
            return await http_websocket_client.dial(
                self._session,
                credentials.url(path, query),
                protocols,
                credentials.context,
                seconds=seconds,
                headers=credentials.headers(),
                server_name=credentials.server_name,
                proxy=credentials.proxy,
                proxy_headers=credentials.proxy_headers,
            )
        except TimeoutError as error:
            raise Unreachable(f"GET {path}: no answer to the handshake within {seconds:g} s") from error

    async def _send(
        self, method: str, path: str, query: Query, headers: Mapping[str, str] | None, body: bytes
    ) -> aiohttp.ClientResponse:
        """Sends once more with new credentials what was rejected with those that a plugin gave."""
        issued = await self._credentials.prepare()
        response = await self._send_once(method, path, query, headers, body)
        if response.status == UNAUTHORIZED and issued is not None and await self._credentials.renew(issued):
            response.close()
            response = await self._send_once(method, path, query, headers, body)
        return response

    async def _send_once(
        self, method: str, path: str, query: Query, headers: Mapping[str, str] | None, body: bytes
    ) -> aiohttp.ClientResponse:
        credentials = self._credentials
        return await self._session.request(
            method,
            URL(credentials.url(path, query), encoded=True),
            headers=credentials.headers(headers),
            data=body or None,
            allow_redirects=False,
            ssl=credentials.context,
            server_hostname=credentials.server_name,
            proxy=credentials.proxy,
            proxy_headers=credentials.proxy_headers,
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


_BEFORE_SENDING = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
)


@contextlib.contextmanager
def _errors(*about: str) -> Iterator[None]:
    """Translates aiohttp's errors: Unreachable before anything was sent, Interrupted after."""
    try:
        yield
    except _BEFORE_SENDING as error:
        raise Unreachable(f"{' '.join(about)}: {error}") from error
    except (aiohttp.ClientError, ConnectionError) as error:
        raise Interrupted(f"{' '.join(about)}: {error or type(error).__name__}") from error


def keepalive_socket(address: Any) -> socket.socket:
    """Creates a socket that detects a vanished peer by TCP keep-alive."""
    family, type_, protocol, _, _ = address
    sock = socket.socket(family, type_, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_SECONDS // 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENCE_SECONDS // 6)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_SECONDS * 1000)
    return sock
