"""Interfaces to the outside world that components are handed: byte streams, clocks, traces.

Nothing here does I/O; `transports/` and `linux/` implement these, and tests hand in their own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class ByteStream(Protocol):
    """An ordered stream of bytes between two peers: a unix socket, a TLS connection, a pair in memory."""

    async def read(self, limit: int) -> bytes:
        """Returns up to `limit` bytes; empty at the end of the stream."""
        ...

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Time as an injected value, so that tests can advance it."""

    def wall(self) -> float:
        """Seconds since the epoch, for timestamps that people read; never for ordering."""
        ...

    def monotonic(self) -> float:
        """Seconds that never decrease, for deadlines and intervals."""
        ...


EVENT = "EVENT"
"""The outcome of a hop that a call in progress delivers, such as a frame of a watch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One arrow of the diagram: a call as it begins (no outcome yet), delivers or ends at a transport."""

    caller: str
    callee: str
    method: str
    pod: str | None = None
    outcome: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


Tap = Callable[[Hop], None]
"""Receives every hop. A tap that raises is dropped and logged; it never disturbs the call."""
