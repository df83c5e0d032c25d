"""Posts bytes to a URL with bounds on time and on the size of the answer, for untrusted peers."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import aiohttp

from podwire import __version__

SECONDS = 10.0
"""Time-out of one request, including its answer."""
MAX_ANSWER = 64 << 10
"""Bytes of an answer that are read; the rest is discarded."""


class Unreachable(Exception):
    """The peer did not answer in time, or not with HTTP."""


@dataclass(frozen=True, slots=True)
class Posted:
    status: int
    body: bytes
    retry_after: float | None = None
    """Seconds to wait before the next request (Retry-After)."""


@contextlib.asynccontextmanager
async def posting(
    url: str, content_type: str, *, seconds: float = SECONDS
) -> AsyncIterator[Callable[[bytes], Awaitable[Posted]]]:
    """Yields a function that posts over keep-alive connections and raises Unreachable.

    Redirects are not followed; proxies and passwords from the environment are ignored.
    """
    headers = {"Content-Type": content_type, "User-Agent": f"podwire/{__version__}"}
    timeout = aiohttp.ClientTimeout(total=seconds)
    context = ssl.create_default_context() if url.startswith("https:") else True  # aiohttp's own may have no CAs
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=timeout, auto_decompress=False
    ) as session:

        async def post(body: bytes) -> Posted:
            try:
                async with session.post(url, data=body, allow_redirects=False) as response:
                    return Posted(response.status, await _read(response), _seconds(response.headers.get("Retry-After")))
            except TimeoutError as error:
                raise Unreachable(f"no answer after {seconds:g} s") from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise Unreachable(str(error) or type(error).__name__) from error

        yield post


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    while len(body) < MAX_ANSWER and (chunk := await response.content.read(MAX_ANSWER - len(body))):
        body += chunk
    if not response.content.at_eof():
        response.close()
    return body


def _seconds(text: str | None) -> float | None:
    """Parses Retry-After; a date is ignored because clocks differ."""
    return float(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None
