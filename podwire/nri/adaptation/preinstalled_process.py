"""A pre-installed plugin as a process: its end of a pair of sockets is file 3, and it dies with its connection."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from podwire.linux.proc import processes
from podwire.nri.adaptation.preinstalled import PreinstalledPlugin
from podwire.transports.mux_connection import MuxConnection, over_socket

log = logging.getLogger(__name__)

SOCKET_FILE = 3
"""The number of the socket in the plugin, as NRI says."""


@asynccontextmanager
async def launched(installed: PreinstalledPlugin, connection: MuxConnection) -> AsyncIterator[int]:
    """Start it and let the connection speak to it; the number of its process. Raises OSError when it cannot be started.

    On the way out it is killed, with all that it started, and reaped.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            child = _start(installed, theirs)
    except BaseException:
        ours.close()
        raise
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(child.pidfd, _tell_end, loop, child, ended, connection)
    log.info("a plugin is started", extra={"plugin": str(installed.plugin), "pid": child.pid})
    try:
        await over_socket(ours, connection)
        yield child.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await ended.wait()
        code = processes.reap(child)
        os.close(child.pidfd)
        level = logging.INFO if code == -signal.SIGKILL else logging.WARNING  # that was us, and why was told already
        log.log(level, "a started plugin has ended", extra={"plugin": str(installed.plugin), "code": code})


def _start(installed: PreinstalledPlugin, theirs: socket.socket) -> processes.Child:
    """With exactly the three variables that NRI gives; what it prints goes where the host's own log goes."""
    env = {
        "NRI_PLUGIN_NAME": installed.plugin.name,
        "NRI_PLUGIN_IDX": installed.plugin.index,
        "NRI_PLUGIN_SOCKET": str(SOCKET_FILE),
    }
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return processes.spawn([str(installed.path)], env=env, files=(nothing, 2, 2, theirs.fileno()))
    finally:
        os.close(nothing)


def _tell_end(
    loop: asyncio.AbstractEventLoop, child: processes.Child, ended: asyncio.Event, connection: MuxConnection
) -> None:
    loop.remove_reader(child.pidfd)
    ended.set()
    connection.abort("its process has ended")
