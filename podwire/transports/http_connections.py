"""The open connections of a server, and which of them are closed when there are too many.

A connection is *trusted* once its peer is authenticated: by a client certificate, or because the handler said so of one
of its requests. Anybody can open connections, so those that are not trusted get little:

| limit                      | not trusted                         | trusted                          |
|----------------------------|-------------------------------------|----------------------------------|
| time without a request     | `unauthenticated_idle_seconds`      | `idle_seconds`                   |
| connections of one address | a quarter of all (IPv6: of a /64)   | all                              |
| closed for a new one       | first: the least recently used one  | then: the least recently used one |

A connection that is busy (a request, a watch, a WebSocket) is never closed for a new one, which waits then.
"""

import ipaddress
from typing import Protocol


class Evictable(Protocol):
    """One connection, as far as the table needs to know it."""

    last_used: float
    network: str

    @property
    def idle(self) -> bool:
        """Whether no request is in progress; also while the TLS handshake lasts."""
        ...

    def evict(self) -> None:
        """Closes the connection at once; `Connections.remove` follows."""
        ...


class Connections:
    """Tracks connections in the order of their last use. All methods but `sweep` and a full house take O(1)."""

    def __init__(self, per_network: int, unauthenticated_idle_seconds: float) -> None:
        self._per_network = per_network
        self._idle_seconds = unauthenticated_idle_seconds
        self._unauthenticated: dict[Evictable, None] = {}
        self._trusted: dict[Evictable, None] = {}
        self._by_network: dict[str, dict[Evictable, None]] = {}
        self.evicted = 0
        """Connections that were closed for a new one, or because an unauthenticated one was idle for too long."""

    def __len__(self) -> int:
        return len(self._unauthenticated) + len(self._trusted)

    @property
    def unauthenticated(self) -> int:
        return len(self._unauthenticated)

    def add(self, connection: Evictable) -> None:
        """Adds a new connection, not trusted yet; closes another of the same network if that has too many."""
        siblings = self._by_network.get(connection.network, {})
        if len(siblings) >= self._per_network:
            self._evict_first(siblings)
        self._by_network.setdefault(connection.network, {})[connection] = None
        self._unauthenticated[connection] = None

    def trust(self, connection: Evictable) -> None:
        if connection in self._unauthenticated:
            self._leave_network(connection)
            self._trusted[connection] = None

    def used(self, connection: Evictable, now: float) -> None:
        """A request came."""
        connection.last_used = now
        for table in (self._trusted, self._unauthenticated, self._by_network.get(connection.network, {})):
            if connection in table:
                del table[connection]
                table[connection] = None

    def remove(self, connection: Evictable) -> None:
        if connection in self._unauthenticated:
            self._leave_network(connection)
        self._trusted.pop(connection, None)

    def evict_one(self) -> bool:
        """Closes one idle connection; returns False when all are busy."""
        return self._evict_first(self._unauthenticated) or self._evict_first(self._trusted)

    def sweep(self, now: float) -> None:
        """Closes unauthenticated that have been idle for too long."""
        for connection in [*self._unauthenticated]:
            if now - connection.last_used < self._idle_seconds:
                return
            if connection.idle:
                self.evicted += 1
                connection.evict()

    def _evict_first(self, table: dict[Evictable, None]) -> bool:
        for connection in table:
            if connection.idle:
                self.remove(connection)
                self.evicted += 1
                connection.evict()
                return True
        return False

    def _leave_network(self, connection: Evictable) -> None:
        del self._unauthenticated[connection]
        siblings = self._by_network[connection.network]
        del siblings[connection]
        if not siblings:
            del self._by_network[connection.network]


def network_of(address: str) -> str:
    """Returns what counts as one peer: an IPv4 address, or the /64 of an IPv6 address."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address.partition("%")[0])
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, 64), strict=False))
