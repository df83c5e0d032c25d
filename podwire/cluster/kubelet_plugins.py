"""The sockets between a kubelet and the plugins of its node: unix sockets that speak gRPC, and directories of them."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from podwire import logs
from podwire.interfaces import Hop, Tap
from podwire.kubelet.ports import DriverPeer, Peer
from podwire.linux.errors import LinuxError
from podwire.linux.fs import inotify
from podwire.protocols.grpc_methods import Handler, Method
from podwire.trace.participants import DEVICE_PLUGIN, KUBELET, NETWORK_DRIVER
from podwire.transports import grpc_client, grpc_server

_log = logging.getLogger("podwire.kubelet.plugins")

GRACE = 0.5
"""Seconds that calls in flight have left when a server stops."""
_MASK = inotify.CREATE | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE | inotify.ONLY_DIRECTORY


class PluginSockets:
    """A `kubelet.ports.PluginDoor`."""

    def __init__(self, tap: Tap | None = None) -> None:
        self._tap = tap

    def connect(self, socket: Path) -> AbstractAsyncContextManager[Peer]:
        tap = None if self._tap is None else _informed(self._tap, socket)
        return grpc_client.connect(socket, tap=tap, caller=KUBELET, callee=DEVICE_PLUGIN)

    def driver(self, socket: Path) -> AbstractAsyncContextManager[DriverPeer]:
        tap = None if self._tap is None else _informed(self._tap, socket)
        return grpc_client.connect(socket, tap=tap, caller=KUBELET, callee=NETWORK_DRIVER)

    @contextlib.asynccontextmanager
    async def serve(
        self, socket: Path, table: Iterable[Method], handlers: Mapping[str, Handler]
    ) -> AsyncIterator[None]:
        server = await grpc_server.serve(socket, table, handlers)
        try:
            yield
        finally:
            await server.close(GRACE)

    async def changes(self, directory: Path) -> AsyncIterator[None]:
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            opened = inotify.Inotify()
        except LinuxError as error:
            _log.warning("plugins that come later go unseen", extra={"directory": str(directory), "why": str(error)})
            yield
            await asyncio.Event().wait()
            return
        with contextlib.closing(opened) as notes:
            loop.add_reader(notes.fileno(), told.set)
            try:
                while True:
                    _watch(notes, directory)
                    yield
                    await told.wait()
                    told.clear()
                    notes.read()
            finally:
                loop.remove_reader(notes.fileno())


def _informed(tap: Tap, socket: Path) -> Tap:
    """The messages name neither the plugin nor the pod for which it is asked."""

    def told(hop: Hop) -> None:
        pod = logs.bound("pod")
        tap(replace(hop, detail={**hop.detail, "socket": str(socket), **({"about": pod} if pod else {})}))

    return told


def _watch(notes: inotify.Inotify, directory: Path) -> None:
    """Before anybody looks into it: what comes between is told, and what goes between is passed over."""
    for folder, _, _ in os.walk(directory):
        with contextlib.suppress(LinuxError):  # it is gone already
            notes.add(folder, _MASK)
