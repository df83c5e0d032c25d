"""Forgets UDP connections to endpoints that are gone.

A client that never pauses keeps its connection, and with it the endpoint that was chosen when it began, or none if
there was none. TCP needs nothing: its peer says that it does not know the connection.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from podwire.linux.errors import LinuxError
from podwire.linux.net.conntrack import KernelConntrack, Translation
from podwire.proxy.metrics import FAMILIES, ProxyMetrics

_log = logging.getLogger("podwire.proxy")

UDP = 17
Frontends = Mapping[tuple[int, bytes], frozenset[bytes]]
_LENGTH = {4: 4, 6: 16}


def stale(version: int, frontends: Frontends, connections: Iterable[Translation]) -> list[Translation]:
    """Returns the connections to these frontends that lead to none of their endpoints. Pure."""
    by_address = {
        (key[: _LENGTH[version]], int.from_bytes(key[-4:-2], "big")): endpoints
        for (family, key), endpoints in frontends.items()
        if family == version
    }
    any_address = bytes(_LENGTH[version])
    result = []
    for connection in connections:
        endpoints = by_address.get((connection.address, connection.port))
        if endpoints is None:
            # a node port of any address; what was not translated and is answered here is another program's
            endpoints = by_address.get((any_address, connection.port))
            if endpoints is None or connection.answers_address == connection.address:
                continue
        target = connection.answers_address + connection.answers_port.to_bytes(2, "big") + b"\0\0"
        if target not in endpoints:
            result.append(connection)
    return result


class Conntrack:
    """Connection tracking of one namespace; looks in a thread, one look at a time."""

    def __init__(self, kernel: KernelConntrack, metrics: ProxyMetrics) -> None:
        self._kernel, self._metrics = kernel, metrics
        self._pending: dict[tuple[int, bytes], frozenset[bytes]] = {}
        self._task: asyncio.Task[None] | None = None

    def forget(self, frontends: Frontends) -> None:
        """Forgets connections that lead elsewhere than to the endpoints of these frontends, soon."""
        if not frontends:
            return
        self._pending.update(frontends)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="forget connections")

    async def _work(self) -> None:
        while self._pending:
            frontends, self._pending = self._pending, {}
            try:
                count = await asyncio.to_thread(self._clean, frontends)
            except LinuxError as error:
                _log.warning("cannot forget connections of Services", extra={"error": str(error)})
                continue
            self._metrics.deleted_flows.inc(FAMILIES, by=count)
            if count:
                _log.info("connections to former endpoints were forgotten", extra={"count": count})

    def _clean(self, frontends: Frontends) -> int:
        versions = {version for version, _ in frontends}
        return sum(
            self._kernel.delete(version, stale(version, frontends, self._kernel.translations(version, UDP)))
            for version in versions
        )
