"""Serves each pool's socket beside the kubelet's and registers there; again whenever either is not what it was.

A kubelet that starts removes all sockets of the directory and makes its own anew. Both are seen in the directory.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from podwire.deviceplugin.pool_service import Offer
from podwire.deviceplugin.ports import Kubelet, Served
from podwire.failpoints import declare, failpoint
from podwire.protocols.grpc_status import RpcError

REGISTERED = declare("device-plugin.registered", "the kubelet has taken a pool's registration")
KUBELET = "kubelet.sock"
FIRST_RETRY, LAST_RETRY = 0.05, 5.0
"""Seconds until a kubelet that did not take a registration is asked again, at first and at most."""

_log = logging.getLogger("podwire.deviceplugin")

Identity = tuple[int, int] | None
"""By which a socket is known to be the same: its inode and when it was made. None when it is not there."""


class Registrar:
    def __init__(self, directory: Path, offers: Sequence[Offer], kubelet: Kubelet) -> None:
        self._directory, self._offers, self._kubelet = directory, offers, kubelet
        self._servers: dict[str, tuple[Served, Identity]] = {}
        self._registered: dict[str, tuple[Identity, Identity, bool]] = {}
        self._refusals: dict[str, str] = {}

    async def run(self, changed: asyncio.Event) -> None:
        """Until cancelled; `changed` is set when the directory may be another."""
        delay = FIRST_RETRY
        try:
            while True:
                changed.clear()
                done = await self._register_all()
                delay = FIRST_RETRY if done else min(delay * 2, LAST_RETRY)
                try:
                    async with asyncio.timeout(None if done else delay):
                        await changed.wait()
                except TimeoutError:
                    continue
                delay = FIRST_RETRY
        finally:
            for server, _ in self._servers.values():
                await server.close()

    async def _register_all(self) -> bool:
        """Whether nothing is left to do until something changes."""
        done = True
        for offer in self._offers:
            try:
                await self._serve(offer)
                done = await self._register(offer) and done
            except (RpcError, OSError) as error:
                done = False
                self._refused(offer, str(error))
        return done

    async def _serve(self, offer: Offer) -> None:
        path = self._directory / offer.endpoint
        server, own = self._servers.get(offer.endpoint, (None, None))
        if server is not None and identity(path) == own:
            return
        if server is not None:
            del self._servers[offer.endpoint]
            await server.close()
        if not self._directory.is_dir():
            raise FileNotFoundError(f"{self._directory} is not there yet")
        server = await self._kubelet.serve(path, offer.handlers)
        self._servers[offer.endpoint] = (server, identity(path))

    async def _register(self, offer: Offer) -> bool:
        theirs = identity(self._directory / KUBELET)
        ours = self._servers[offer.endpoint][1]
        now = theirs, ours, offer.prefers
        if theirs is None or self._registered.get(offer.endpoint) == now:
            return True  # its coming is told
        await self._kubelet.register(offer.registration())
        failpoint(REGISTERED)
        self._registered[offer.endpoint] = now
        self._refusals.pop(offer.endpoint, None)
        _log.info("registered", extra={"resource": offer.pool.resource, "endpoint": offer.endpoint})
        return True

    def _refused(self, offer: Offer, why: str) -> None:
        """Said once for each reason: it is tried again and again."""
        if self._refusals.get(offer.endpoint) != why:
            self._refusals[offer.endpoint] = why
            _log.warning("not registered; tried again", extra={"resource": offer.pool.resource, "why": why})


def identity(path: Path) -> Identity:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns
