"""HTTP for the registry client, on aiohttp: any host, TLS by its own certificates, bodies in pieces, no redirects.

It uses the proxies that it is given; passwords in .netrc are ignored. Importing this module loads aiohttp: not before
the first pull.
"""

import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import aiohttp
from yarl import URL

from podwire import __version__
from podwire.protocols.distribution.hosts import Tls
from podwire.protocols.distribution.http import Interrupted, NotTls, Unreachable
from podwire.protocols.distribution.proxies import Proxies
from podwire.transports.http_client import keepalive_socket

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 60.0
"""Without a byte for this long, a connection counts as cut."""
_CLIENT_ALERTS = ("ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE_REQUIRED", "ALERT_UNKNOWN_CA")
PIECE = 1 << 20
"""Bytes that are read ahead of a slow disk."""


@contextlib.asynccontextmanager
async def open_client(
    *, silence: float = SILENCE_SECONDS, proxies: Proxies | None = None
) -> AsyncIterator["RegistryHttp"]:
    connector = aiohttp.TCPConnector(limit=0, socket_factory=keepalive_socket)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence)
    headers = {"User-Agent": f"podwire/{__version__}", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=headers, auto_decompress=False, read_bufsize=PIECE
    ) as session:
        yield RegistryHttp(session, proxies or Proxies())


class RegistryHttp:
    """Implements podwire.protocols.distribution.http.Http."""

    def __init__(self, session: aiohttp.ClientSession, proxies: Proxies) -> None:
        self._session = session
        self._proxies = proxies
        self._contexts: dict[Tls, tuple[tuple[int, ...], ssl.SSLContext]] = {}
        """With the times of their files: a certificate that was replaced counts for the next request."""

    async def request(
        self, method: str, url: str, *, headers: Sequence[tuple[str, str]] = (), body: bytes = b"", tls: Tls
    ) -> "_Response":
        proxy = self._proxies.find(url)
        try:
            response = await self._session.request(
                method,
                URL(url, encoded=True),
                headers=list(headers),
                data=body or None,
                allow_redirects=False,
                ssl=self._context(tls),
                proxy=proxy or None,
            )
        except (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError) as error:
            raise Unreachable(f"proxy {URL(proxy).authority.rpartition('@')[2]}: {_words(error)}") from error
        except aiohttp.ClientConnectorSSLError as error:
            if "WRONG_VERSION_NUMBER" in str(error) or "RECORD_LAYER_FAILURE" in str(error):
                raise NotTls(_words(error)) from error
            raise Unreachable(_words(error)) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL, ValueError) as error:
            raise Unreachable(_words(error)) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Interrupted(_words(error)) from error
        return _Response(response)

    def _context(self, tls: Tls) -> ssl.SSLContext:
        """Raises Unreachable for a certificate that cannot be read."""
        files = [*tls.ca, *(file for pair in tls.client for file in pair)]
        try:
            times = tuple(Path(file).stat().st_mtime_ns for file in files)
            if tls in self._contexts and self._contexts[tls][0] == times:
                return self._contexts[tls][1]
            context = ssl.create_default_context()
            if not tls.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            for path in tls.ca:
                context.load_verify_locations(path)
            for certificate, key in tls.client:
                context.load_cert_chain(certificate, key, password="")  # else a locked key asks at the terminal
        except (OSError, ssl.SSLError) as error:
            raise Unreachable(f"cannot use the certificates {', '.join(dict.fromkeys(files))}: {error}") from error
        self._contexts[tls] = times, context
        return context


class _Response:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return {name.lower(): value for name, value in self._response.headers.items()}

    @property
    def challenges(self) -> Sequence[str]:
        return self._response.headers.getall("WWW-Authenticate", [])

    async def read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Interrupted(_words(error)) from error

    def close(self) -> None:
        self._response.close()


def _words(error: Exception) -> str:
    """Returns aiohttp's words without its own objects in them."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect: {_cause(error.os_error)}"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"{error.status} {error.message}"
    if any(alert in str(error) for alert in _CLIENT_ALERTS):
        return f"the host wants a client certificate, or refused ours (`client` in hosts.toml): {error}"
    return str(error) or type(error).__name__


def _cause(error: OSError) -> str:
    """Returns the kernel's words; asyncio has "Connect call failed" and an address for all of them."""
    if error.errno and error.errno > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return error.strerror or str(error)
