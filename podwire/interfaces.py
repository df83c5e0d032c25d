"""What everyone is handed, as protocols: the four places where the outside world comes in.

Nothing here does anything; `transports/` and `linux/` implement these, tests hand in their own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class ByteStream(Protocol):
    """An ordered stream of bytes between two peers: a unix socket, a TLS connection, a pair in memory."""

    async def read(self, limit: int) -> bytes:
        """Up to `limit` bytes; empty when the peer has finished."""
        ...

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Time as a value handed in, so that tests can move it."""

    def wall(self) -> float:
        """Seconds since the epoch, for timestamps that people read; never for ordering."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for deadlines and intervals."""
        ...


EVENT = "EVENT"
"""The outcome of a hop that delivers something while its call goes on, such as a frame of a watch."""


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
"""Is told of every hop. One that raises is dropped and logged; it never disturbs the call."""
