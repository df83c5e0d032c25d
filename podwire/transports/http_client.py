"""HTTP for the API client, on aiohttp: keep-alive connections, streams, TLS, credentials on every request.

Proxies and passwords from the environment are ignored.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from podwire.interfaces import Tap
from podwire.protocols.k8sapi.client_side import Http, Incoming, Interrupted, Reply, Unreachable
from podwire.protocols.k8sapi.client_side.http import Query
from podwire.protocols.k8sapi.kubeconfig import Access, BadKubeconfig
from podwire.transports.credentials import CredentialFiles, ssl_context, token_source
from podwire.transports.tapped_http import TappedHttp

log = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0

IDLE_SECONDS = 30.0
"""Idle connections are closed before the server would do it, so that no request meets a closing connection."""

MAX_IN_FLIGHT = 8
"""Requests in flight; others wait for an open connection, which is faster than another handshake. Streams do not
count."""

CHECK_SECONDS = 1.0
"""How often a client looks for new credentials; only when it sends requests."""

SILENCE_SECONDS = 30
"""A server that acknowledges nothing for this long is considered dead."""


@contextlib.asynccontextmanager
async def connect(
    access: Access, *, user_agent: str = "podwire", tap: Tap | None = None, callee: str = "server"
) -> AsyncIterator[Http]:
    """Yields a client for this server and identity. Nothing is sent before the first request.

    When the files of the access change, as at a rotation of certificates, later requests use the new ones. A tap
    receives every request; its caller is the user agent.
    """
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, socket_factory=keepalive_socket)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    # Compressing the answers of a near server costs more than it saves, and would delay the frames of a watch.
    headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
    credentials = _Credentials(access)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as session:
        client = HttpClient(session, credentials)
        yield client if tap is None else TappedHttp(client, tap, caller=user_agent, callee=callee)


class _Credentials:
    """The server and the identity of a client, as its files have them now.

    A connection is used only by requests with the context with which it was made. So a new context means new
    connections, and the old ones are closed when they have been idle for a while.
    """

    def __init__(self, access: Access) -> None:
        """Raises BadKubeconfig."""
        self._files = CredentialFiles(access)
        self._checked = time.monotonic()
        self._use(access)

    def _use(self, access: Access) -> None:
        self.context: ssl.SSLContext | bool = ssl_context(access) or True
        self.server = access.server
        self.server_name = access.server_name or None
        self.token = token_source(access)

    def refresh(self) -> None:
        """Looks at the files, at most once a second; keeps what it has when the new ones are not usable."""
        now = time.monotonic()
        if now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        try:
            if (access := self._files.changed()) is not None:
                self._use(access)
        except BadKubeconfig as error:
            log.warning("cannot use new credentials", extra={"error": str(error)})


class HttpClient:
    """Implements podwire.protocols.k8sapi.client_side.Http."""

    def __init__(self, session: aiohttp.ClientSession, credentials: _Credentials) -> None:
        self._session = session
        self._credentials = credentials
        self._in_flight = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def request(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        with _errors(method, path):
            async with self._in_flight, self._send(method, path, query, headers, body) as response:
                return Reply(response.status, _lower(response), await response.read())

    async def stream(
        self, method: str, path: str, *, query: Query = (), headers: Mapping[str, str] | None = None
    ) -> Incoming:
        with _errors(method, path):
            return _Incoming(await self._send(method, path, query, headers, b""), f"{method} {path}")

    def _send(
        self, method: str, path: str, query: Query, headers: Mapping[str, str] | None, body: bytes
    ) -> Any:  # aiohttp's request context: awaitable and an async context manager
        credentials = self._credentials
        credentials.refresh()
        sent = dict(headers or {})
        if token := credentials.token():
            sent["Authorization"] = f"Bearer {token}"
        url = f"{credentials.server}{path}?{urlencode(query)}" if query else f"{credentials.server}{path}"
        return self._session.request(
            method,
            URL(url, encoded=True),
            headers=sent,
            data=body or None,
            allow_redirects=False,
            ssl=credentials.context,
            server_hostname=credentials.server_name,
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
    """Translates aiohttp's errors: Unreachable before anything was sent, Interrupted after."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
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
