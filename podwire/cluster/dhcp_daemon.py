"""Runs the daemon of the CNI plugin dhcp."""

import asyncio
import contextlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from podwire.durable.files import write_durably
from podwire.ipam.dhcp.calls import LARGEST
from podwire.ipam.dhcp.client import Timing
from podwire.ipam.dhcp.daemon import DhcpDaemon, Limits
from podwire.ipam.dhcp.lease_keeper import REGAIN
from podwire.ipam.dhcp.request import leases_directory
from podwire.transports import unix_sockets

_log = logging.getLogger("podwire.ipam")
_BACKLOG = 1024
ACQUIRE = 20.0
"""Seconds for a server to grant a lease: runtimes wait for 55 s or more, and retry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the daemon, as on the command line."""

    socket: Path
    timeout: float = ACQUIRE
    retry: float = REGAIN
    pidfile: Path | None = None


async def run(options: Options) -> None:
    """Answers plugins and renews leases until cancelled. Leases stay: the next instance renews them.

    Raises unix_sockets.CannotListen.
    """
    async with contextlib.AsyncExitStack() as stack:
        listener, socket = unix_sockets.inherited_listener(), options.socket.absolute()
        if listener is None:
            listener = await stack.enter_async_context(unix_sockets.listening(socket, _BACKLOG))
        else:
            socket = Path(listener.getsockname())
        if options.pidfile is not None:
            write_durably(options.pidfile, f"{os.getpid()}\n".encode())
            stack.callback(options.pidfile.unlink, missing_ok=True)
        limits = Limits(exchange=Timing(acquire=options.timeout), regain=options.retry)
        daemon = DhcpDaemon(leases_directory(str(socket)), limits)
        server = await asyncio.start_unix_server(daemon.serve, sock=listener, limit=LARGEST)
        with contextlib.closing(server):
            _log.info("DHCP daemon is serving", extra={"socket": str(socket)})
            await daemon.run()
