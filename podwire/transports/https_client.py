"""Posts to servers that users name: webhooks. Bounds time and size; reuses connections; errors as Go words them.

Redirects are not followed; proxies and passwords from the environment are ignored.
"""

import asyncio
import contextlib
import os
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from podwire.transports.http_client import keepalive_socket
from podwire.transports.tls import client_context

MAX_ANSWER = 3 << 20
"""Bytes of an answer, as of a request body."""
IDLE_SECONDS = 30.0
MOST_CONTEXTS = 128
"""TLS contexts that are kept, one for each authority and server name."""

_UNKNOWN_AUTHORITY = (18, 19, 20, 21)
"""OpenSSL's codes of chains that lead to no trusted authority."""
_EXPIRED = (9, 10)


class Failed(Exception):
    """The server did not answer in time, or not as it must."""


@contextlib.asynccontextmanager
async def https_client() -> AsyncIterator["HttpsClient"]:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, socket_factory=keepalive_socket)
    headers = {"User-Agent": "kube-apiserver-admission", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=connector,
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield HttpsClient(session)


class HttpsClient:
    """A pool of connections, each used for one authority and server name only."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._contexts: OrderedDict[tuple[str, str], ssl.SSLContext] = OrderedDict()

    async def post(
        self, url: str, body: bytes, seconds: float, *, ca: str = "", address: str = "", port: int = 0
    ) -> tuple[int, bytes]:
        """Returns the status and the body of the answer; connects to `address` and `port` if they are given.

        Raises Failed.
        """
        parts = urlsplit(url)
        name = parts.hostname or ""
        real = url
        if address:
            host = f"[{address}]" if ":" in address else address
            real = parts._replace(netloc=f"{host}:{port}").geturl()
        try:
            context = self._context(ca, name)
            async with asyncio.timeout(seconds):
                async with self._session.post(
                    URL(real, encoded=True),
                    data=body,
                    headers={"Content-Type": "application/json", "Accept": "application/json", "Host": parts.netloc},
                    allow_redirects=False,
                    ssl=context,
                    server_hostname=name,
                ) as response:
                    return response.status, await _read(response)
        except TimeoutError:
            raise Failed("context deadline exceeded") from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise Failed(_certificate_error(error.certificate_error, name)) from error
        except (aiohttp.ClientConnectorSSLError, ssl.SSLError) as error:
            raise Failed(f"tls: {error}") from error
        except aiohttp.ClientConnectorError as error:
            where = f"{address or parts.hostname}:{port or parts.port or 443}"
            reason = os.strerror(error.os_error.errno).lower() if error.os_error.errno else str(error.os_error)
            raise Failed(f"dial tcp {where}: connect: {reason}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Failed(str(error) or type(error).__name__) from error

    def _context(self, ca: str, name: str) -> ssl.SSLContext:
        context = self._contexts.get((ca, name))
        if context is None:
            context = client_context(ca_data=ca or None)
            if len(self._contexts) >= MOST_CONTEXTS:
                self._contexts.popitem(last=False)
            self._contexts[ca, name] = context
        return context


async def _read(response: aiohttp.ClientResponse) -> bytes:
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MAX_ANSWER:
            response.close()
            raise Failed(f"the answer has more than {MAX_ANSWER} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _certificate_error(error: Exception, name: str) -> str:
    """Returns a failed verification as Go's crypto/x509 words it."""
    code = getattr(error, "verify_code", 0)
    if code in _UNKNOWN_AUTHORITY:
        why = "certificate signed by unknown authority"
    elif code in _EXPIRED:
        why = "certificate has expired or is not yet valid"
    elif code in (62, 64):
        why = f"certificate is not valid for any names, but wanted to match {name}"
    else:
        why = str(getattr(error, "verify_message", "") or error)
    return f"tls: failed to verify certificate: x509: {why}"
