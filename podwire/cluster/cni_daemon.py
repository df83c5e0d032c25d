"""Runs the daemon that does the work of our CNI plugins."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from podwire.cluster import cni_tap, tracing
from podwire.cniplugins.daemon.server import BACKLOG, Daemon, Limits
from podwire.trace.participants import CNI_PLUGIN
from podwire.transports import unix_sockets

_log = logging.getLogger("podwire.cniplugins")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the daemon, as on the command line."""

    socket: Path
    grace: float = Limits().grace
    any_mounts: bool = False
    """Serve callers of other mount namespaces: this process is a pod that has the host's directories mounted."""


@contextlib.asynccontextmanager
async def running(options: Options) -> AsyncIterator[None]:
    """Answers plugins while the context is open, then finishes running calls within the grace period.

    Raises unix_sockets.CannotListen.
    """
    async with unix_sockets.listening(options.socket, BACKLOG) as listener:
        answer = cni_tap.tapped_answer(tracing.tap(CNI_PLUGIN))
        daemon = Daemon(listener, answer=answer, any_mounts=options.any_mounts)
        try:
            daemon.start()
            _log.info("CNI daemon is serving", extra={"socket": str(options.socket)})
            yield
        finally:
            await asyncio.to_thread(daemon.stop, options.grace)


async def run(options: Options) -> None:
    """Works until cancelled."""
    async with running(options):
        await asyncio.Event().wait()
