"""Runs the daemon of the CNI plugin dhcp."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

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


async def run(options: Options) -> None:
    """Answers plugins and renews leases until cancelled. Leases stay: the next instance renews them.

    Raises unix_sockets.CannotListen.
    """
    limits = Limits(exchange=Timing(acquire=options.timeout), regain=options.retry)
    daemon = DhcpDaemon(leases_directory(str(options.socket.absolute())), limits)
    async with unix_sockets.listening(options.socket, _BACKLOG) as listener:
        server = await asyncio.start_unix_server(daemon.serve, sock=listener, limit=LARGEST)
        with contextlib.closing(server):
            _log.info("DHCP daemon is serving", extra={"socket": str(options.socket)})
            await daemon.run()
