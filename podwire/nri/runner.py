"""A plugin's whole life: connected again and again, until it is stopped."""

import asyncio
import logging
import os
import socket as sockets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from podwire.nri.errors import BadStart, Refused
from podwire.nri.identity import start
from podwire.nri.plugin import Plugin
from podwire.nri.stub import SHUTDOWN_GRACE, Connect, Stub
from podwire.protocols.grpc_status import Aborted, ResourceExhausted, RpcError, Unavailable
from podwire.protocols.nri.names import PluginId
from podwire.transports import mux_connection

_log = logging.getLogger("podwire.nri.runner")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 3.0
"""Seconds between tries; shorter than runtimes wait for a plugin that is being restarted."""
STEADY = 10.0
"""Seconds after which a connection counts as one that held, and pauses begin anew."""

_LATER = (Aborted, ResourceExhausted, Unavailable)
"""Refusals that may be none the next time."""


async def run(
    plugin: Plugin,
    *,
    socket: str | os.PathLike[str] | sockets.socket | None = None,
    index: str | None = None,
    name: str | None = None,
    config: str = "",
    grace: float = SHUTDOWN_GRACE,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Be that plugin until cancelled; hooks that have begun then have `grace` seconds to end.

    At a path (by default where runtimes listen) it connects again whenever the connection ends. Over a connection that
    is there already, handed in or inherited from the runtime that started it, it returns when that ends.
    `config` is for runtimes that give none. Raises BadStart, Refused.
    """
    given = socket if not isinstance(socket, sockets.socket) else None
    begin = start(environ, index=index or plugin.index, name=name or plugin.name, socket=given)
    life = _Life(plugin, begin.me, config, grace)
    if isinstance(socket, sockets.socket):
        await life.once(partial(mux_connection.over_socket, socket))
    elif isinstance(begin.place, int):
        await life.once(partial(mux_connection.over_socket, _inherited(begin.place)))
    else:
        await life.forever(begin.place)


def _inherited(descriptor: int) -> sockets.socket:
    try:
        os.set_inheritable(descriptor, False)  # programs that the plugin runs are not the plugin
        return sockets.socket(fileno=descriptor)
    except OSError as error:
        raise BadStart(f"NRI_PLUGIN_SOCKET: descriptor {descriptor} is no socket: {error.strerror}") from error


@dataclass(slots=True)
class Pauses:
    """How long to wait before the next try: twice as long each time, as before after a connection that held."""

    _next: float = FIRST_PAUSE

    def after(self, lived: float) -> float:
        """The pause after a connection that lived so many seconds; 0 if there was none."""
        pause = FIRST_PAUSE if lived >= STEADY else self._next
        self._next = min(pause * 2, LONGEST_PAUSE)
        return pause


@dataclass(slots=True)
class _Life:
    plugin: Plugin
    me: PluginId
    config: str
    grace: float
    _told: str = ""

    async def once(self, connect: Connect) -> None:
        """Raises Refused also for a connection that ends before the plugin is let in."""
        session = self._session()
        try:
            why = await session.live(connect)
        except (RpcError, mux_connection.MuxConnectionError, OSError) as error:
            raise Refused(f"{self.me} is not registered: {error}") from error
        if not session.was_ready:
            raise Refused(f"{self.me} is not let in: {why}")
        _log.info("the connection ended", extra={"plugin": str(self.me), "why": why})

    async def forever(self, path: Path) -> None:
        pauses, now = Pauses(), asyncio.get_running_loop().time
        while True:
            begun = now()
            ready = await self._try(path)
            await asyncio.sleep(pauses.after(now() - begun if ready else 0.0))

    async def _try(self, path: Path) -> bool:
        """One connection to its end; whether it was used. Raises Refused."""
        session = self._session()
        try:
            why = await session.live(partial(mux_connection.connect, path))
        except _LATER as error:
            self._tell("the runtime lets nobody in at the moment", str(error))
        except RpcError as error:
            raise Refused(f"the runtime refuses {self.me}: {error}") from error
        except mux_connection.MuxConnectionError as error:
            self._tell("the plugin is not registered, and tries again", str(error))
        except OSError as error:
            self._tell("no runtime listens, and the plugin waits", f"{path}: {error.strerror}")
        else:
            if session.was_ready:
                self._told = ""
            when = "" if session.was_ready else " before the plugin was synchronized"
            self._tell(f"the connection ended{when}, and the plugin connects again", why)
        return session.was_ready

    def _session(self) -> Stub:
        return Stub(self.plugin, self.me, config=self.config, grace=self.grace)

    def _tell(self, what: str, why: str) -> None:
        """Once per state, and not once per try."""
        if (told := f"{what}: {why}") != self._told:
            self._told = told
            _log.warning(what, extra={"plugin": str(self.me), "why": why})
