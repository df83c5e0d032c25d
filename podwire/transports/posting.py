"""Posts bytes to a URL and reads a bounded part of the answer, in a bounded time: for peers that nobody trusts."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import aiohttp

from podwire import __version__

SECONDS = 10.0
"""For one request, from the first byte to the last of the answer."""
MOST_ANSWER = 64 << 10
"""Bytes of an answer that are read; the rest is not waited for."""


class Unreachable(Exception):
    """Nobody answered, or not in time, or not in HTTP."""


@dataclass(frozen=True, slots=True)
class Posted:
    status: int
    body: bytes
    retry_after: float | None = None
    """Seconds that the peer wants to be left alone."""


@contextlib.asynccontextmanager
async def posting(
    url: str, content_type: str, *, seconds: float = SECONDS
) -> AsyncIterator[Callable[[bytes], Awaitable[Posted]]]:
    """A function that posts, over connections that are kept. It raises Unreachable.

    Redirects are answers like others; proxies and passwords from the environment are not looked at.
    """
    headers = {"Content-Type": content_type, "User-Agent": f"podwire/{__version__}"}
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout, auto_decompress=False) as session:

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
    found = b""
    while len(found) < MOST_ANSWER and (more := await response.content.read(MOST_ANSWER - len(found))):
        found += more
    if not response.content.at_eof():
        response.close()
    return found


def _seconds(text: str | None) -> float | None:
    """A date is not looked at: clocks differ."""
    return float(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None
