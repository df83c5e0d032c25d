"""Runs a plugin: connects, serves, and connects again until it is stopped."""

import asyncio
import logging
import os
import socket as sockets
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from podwire.nri.errors import BadStart, Refused
from podwire.nri.identity import identify
from podwire.nri.plugin import Plugin
from podwire.nri.stub import DEFAULT_LIMITS, SHUTDOWN_GRACE, Limits, Stub
from podwire.protocols.grpc_status import Aborted, ResourceExhausted, RpcError, Unavailable
from podwire.protocols.nri.names import PluginId
from podwire.tasks.backoff import Pauses
from podwire.transports import mux_connection

_log = logging.getLogger("podwire.nri.runner")

_TEMPORARY = (Aborted, ResourceExhausted, Unavailable)
"""Errors of RegisterPlugin that may be gone at the next attempt."""


async def run(
    plugin: Plugin,
    *,
    socket: str | os.PathLike[str] | sockets.socket | None = None,
    index: str | None = None,
    name: str | None = None,
    config: str = "",
    grace: float = SHUTDOWN_GRACE,
    limits: Limits = DEFAULT_LIMITS,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Runs a plugin until cancelled; hooks under way then have `grace` seconds to end.

    With the path of a socket (by default the runtimes' own) it connects again whenever the connection ends. With an
    existing connection, handed in or inherited from the runtime that started it, it returns when that ends.
    `config` is for runtimes that send none. Raises BadStart, Refused.
    """
    path = socket if not isinstance(socket, sockets.socket) else None
    identity = identify(environ, index=index or plugin.index, name=name or plugin.name, socket=path)

    def stub() -> Stub:
        return Stub(plugin, identity.plugin, config=config, grace=grace, limits=limits)

    if isinstance(socket, sockets.socket):
        await _serve_once(stub(), identity.plugin, socket)
    elif isinstance(identity.runtime, int):
        await _serve_once(stub(), identity.plugin, _inherited(identity.runtime))
    else:
        pauses, clock = Pauses(limits.first_pause, limits.longest_pause), asyncio.get_running_loop().time
        attempts = _Attempts(identity.plugin, identity.runtime)
        while True:
            began = clock()
            if await attempts.serve(stub()) and clock() - began >= limits.stable:
                pauses.reset()
            await asyncio.sleep(pauses.next())


def _inherited(descriptor: int) -> sockets.socket:
    try:
        os.set_inheritable(descriptor, False)  # programs that the plugin runs are not the plugin
        return sockets.socket(fileno=descriptor)
    except OSError as error:
        raise BadStart(f"NRI_PLUGIN_SOCKET: descriptor {descriptor} is not a socket: {error.strerror}") from error


async def _serve_once(stub: Stub, identity: PluginId, connection: sockets.socket) -> None:
    """Raises Refused, also for a connection that ends before the plugin is synchronized."""
    try:
        cause = await stub.serve(partial(mux_connection.over_socket, connection))
    except (RpcError, mux_connection.MuxConnectionError, OSError) as error:
        raise Refused(f"{identity} is not registered: {error}") from error
    if not stub.was_ready:
        raise Refused(f"{identity} was disconnected before it was synchronized: {cause}")
    _log.info("connection to the runtime ended", extra={"plugin": str(identity), "error": cause})


class _Attempts:
    """Connections to a socket, one after the other; logs once per state and not once per attempt."""

    def __init__(self, identity: PluginId, path: Path) -> None:
        self._identity, self._path = identity, path
        self._logged: tuple[str, str] | None = None

    async def serve(self, stub: Stub) -> bool:
        """Serves one connection to its end; returns whether the plugin was synchronized. Raises Refused."""
        try:
            cause = await stub.serve(partial(mux_connection.connect, self._path))
        except _TEMPORARY as error:
            self._log("runtime rejects plugins at the moment, retrying", str(error))
        except RpcError as error:
            raise Refused(f"the runtime rejected {self._identity}: {error}") from error
        except mux_connection.MuxConnectionError as error:
            self._log("registration with the runtime failed, retrying", str(error))
        except OSError as error:
            self._log("cannot connect to the runtime, retrying", f"{self._path}: {error.strerror}")
        else:
            if stub.was_ready:
                self._logged = None
                self._log("connection to the runtime ended, connecting again", cause)
            else:
                self._log("connection ended before the plugin was synchronized, connecting again", cause)
        return stub.was_ready

    def _log(self, message: str, cause: str) -> None:
        if self._logged != (message, cause):
            self._logged = (message, cause)
            _log.warning(message, extra={"plugin": str(self._identity), "error": cause})
