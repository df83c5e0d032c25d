"""gRPC over unix sockets between a kubelet and the plugins of its node, and watches of socket directories."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from podwire import logs
from podwire.interfaces import Hop, Tap
from podwire.kubelet.ports import DriverPeer, Peer
from podwire.linux.errors import LinuxError
from podwire.linux.fs import inotify
from podwire.linux.fs.trees import directories_below
from podwire.protocols.grpc_methods import Handler, Method
from podwire.trace.participants import DEVICE_PLUGIN, KUBELET, NETWORK_DRIVER
from podwire.transports import grpc_client, grpc_server

_log = logging.getLogger("podwire.kubelet.plugins")

GRACE = 0.5
"""Seconds for calls in flight when a server stops."""
_MASK = inotify.CREATE | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE | inotify.ONLY_DIRECTORY


class PluginSockets:
    """A `kubelet.ports.PluginDoor`."""

    def __init__(self, tap: Tap | None = None) -> None:
        self._tap = tap

    def connect(self, socket: Path) -> AbstractAsyncContextManager[Peer]:
        tap = None if self._tap is None else _with_pod(self._tap, socket)
        return grpc_client.connect(socket, tap=tap, caller=KUBELET, callee=DEVICE_PLUGIN)

    def driver(self, socket: Path) -> AbstractAsyncContextManager[DriverPeer]:
        tap = None if self._tap is None else _with_pod(self._tap, socket)
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
        changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            opened = inotify.Inotify()
        except LinuxError as error:
            _log.warning("cannot watch plugin directory", extra={"path": str(directory), "error": str(error)})
            yield
            await asyncio.Event().wait()
            return
        with contextlib.closing(opened) as notes:
            loop.add_reader(notes.fileno(), changed.set)
            try:
                while True:
                    _watch(notes, directory)
                    yield
                    await changed.wait()
                    changed.clear()
                    notes.read()
            finally:
                loop.remove_reader(notes.fileno())


def _with_pod(tap: Tap, socket: Path) -> Tap:
    """Adds the socket and the pod to a hop: messages name neither the plugin nor the pod."""

    def tap_with_pod(hop: Hop) -> None:
        pod = logs.bound("pod")
        tap(replace(hop, detail={**hop.detail, "socket": str(socket), **({"about": pod} if pod else {})}))

    return tap_with_pod


def _watch(notes: inotify.Inotify, directory: Path) -> None:
    """Adds watches before the directory is listed: a socket that appears meanwhile is reported, one that vanishes is
    skipped."""
    for folder in directories_below(directory):
        with contextlib.suppress(LinuxError):  # already removed
            notes.add(folder, _MASK)
