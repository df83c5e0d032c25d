"""Serves each pool's socket and registers it with the kubelet; again whenever one of their sockets is replaced.

A kubelet that starts removes all sockets in the directory and creates its own again. Both are seen in the directory.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from podwire.deviceplugin.pool_service import PoolService
from podwire.deviceplugin.ports import Kubelet, Served
from podwire.failpoints import declare, failpoint
from podwire.protocols.grpc_status import RpcError
from podwire.tasks.backoff import Pauses

REGISTERED = declare("device-plugin.registered", "the kubelet has taken a pool's registration")
KUBELET = "kubelet.sock"

_log = logging.getLogger("podwire.deviceplugin")

Identity = tuple[int, int] | None
"""Identifies a socket: inode and change time; None when it does not exist."""


class Registrar:
    def __init__(self, directory: Path, services: Sequence[PoolService], kubelet: Kubelet, pauses: Pauses) -> None:
        """`pauses` are between attempts to register."""
        self._directory, self._services, self._kubelet, self._pauses = directory, services, kubelet, pauses
        self._servers: dict[str, tuple[Served, Identity]] = {}
        self._registered: dict[str, tuple[Identity, Identity, bool]] = {}
        self._failures: dict[str, str] = {}

    async def run(self, changed: asyncio.Event) -> None:
        """Until cancelled; `changed` is set when the directory may have changed."""
        try:
            while True:
                changed.clear()
                done = True  # nothing is left to do until something changes
                for service in self._services:
                    try:
                        await self._serve(service)
                        done = await self._register(service) and done
                    except (RpcError, OSError) as error:
                        done = False
                        if self._failures.get(service.endpoint) != str(error):  # logged once: registration is retried
                            self._failures[service.endpoint] = str(error)
                            facts = {"resource": service.pool.resource, "error": str(error)}
                            _log.warning("cannot register pool; retrying", extra=facts)
                try:
                    async with asyncio.timeout(None if done else self._pauses.next()):
                        await changed.wait()
                except TimeoutError:
                    continue
                self._pauses.reset()
        finally:
            for server, _ in self._servers.values():
                await server.close()

    async def _serve(self, service: PoolService) -> None:
        path = self._directory / service.endpoint
        server, own = self._servers.get(service.endpoint, (None, None))
        if server is not None and identity(path) == own:
            return
        if server is not None:
            del self._servers[service.endpoint]
            await server.close()
        if not self._directory.is_dir():
            raise FileNotFoundError(f"{self._directory} does not exist yet")
        server = await self._kubelet.serve(path, service.handlers)
        self._servers[service.endpoint] = (server, identity(path))

    async def _register(self, service: PoolService) -> bool:
        theirs = identity(self._directory / KUBELET)
        ours = self._servers[service.endpoint][1]
        now = theirs, ours, service.prefers
        if theirs is None or self._registered.get(service.endpoint) == now:
            return True  # an event comes when it exists
        await self._kubelet.register(service.registration())
        failpoint(REGISTERED)
        self._registered[service.endpoint] = now
        self._failures.pop(service.endpoint, None)
        _log.info(
            "registered pool with kubelet", extra={"resource": service.pool.resource, "endpoint": service.endpoint}
        )
        return True


def identity(path: Path) -> Identity:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns
