"""Interfaces of what the DNS server is handed: how it asks other servers."""

from collections.abc import Awaitable, Callable
from typing import Protocol

Reply = bytes | None
"""None means that there is no answer."""
Handler = Callable[[bytes, str], Reply | Awaitable[Reply]]
"""Takes a packet and the address of its sender; answers at once where nothing has to be waited for."""


class Exchange(Protocol):
    """Sends one query to another server, each from a random port of its own. Raises OSError, TimeoutError."""

    async def udp(self, host: str, port: int, message: bytes, seconds: float, accept: Callable[[bytes], bool]) -> bytes:
        """Returns the first datagram from that server that is accepted; others are ignored."""
        ...

    async def tcp(self, host: str, port: int, message: bytes, seconds: float) -> bytes: ...
