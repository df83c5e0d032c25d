"""Registration of device plugins, and what becomes of a resource when its plugin is gone.

Plugins register at the kubelet's own socket in the directory of device plugins, or with the plugin manager.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from podwire.kubelet.devices.plugin import Limits, Plugin
from podwire.kubelet.devices.pool import Device
from podwire.kubelet.devices.resource import Resource
from podwire.kubelet.plugin_manager import Announced, Refused
from podwire.kubelet.ports import PluginSockets
from podwire.objects.names import qualified_name
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.deviceplugin import methods
from podwire.protocols.deviceplugin.methods import VERSION
from podwire.protocols.grpc_status import AlreadyExists, InvalidArgument, RpcError, Unavailable

log = logging.getLogger(__name__)

SOCKET = "kubelet.sock"
"""The kubelet's own socket, in the directory that plugins put theirs into."""
MAX_PATH = 107
"""Bytes of a unix socket's path."""

Changed = Callable[[Resource, set[str]], None]
"""Called with a resource that was added or changed, and the ids of its changed devices."""


class DevicePluginRegistry:
    """`run` is the parent of all plugins' tasks. `add_resource` is awaited before a new resource is accepted."""

    def __init__(
        self,
        sockets: PluginSockets,
        directory: Path,
        *,
        grace: float,
        limits: Limits,
        changed: Changed,
        add_resource: Callable[[str], Awaitable[None]],
    ) -> None:
        self._sockets = sockets
        self._directory = directory
        self._grace = grace
        self._limits = limits
        self._changed = changed
        self._add_resource = add_resource
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self.resources: dict[str, Resource] = {}

    async def run(self) -> None:
        """Serve until cancelled; the plugin manager need not wait for the socket."""
        async with asyncio.TaskGroup() as group:
            for resource in self.resources.values():
                grace = group.create_task(self._after_grace(resource), name=f"grace period of {resource.name}")
                self._running[resource.name] = grace
            self._tasks = group
            try:
                await self._listen()
            finally:
                self._tasks = None  # the plugin manager may end later, and deregisters every plugin

    async def _listen(self) -> None:
        """1. Remove stale sockets, so that plugins register again.  2. Listen, if the socket can be created."""
        handlers = {methods.REGISTER.name: self._on_register}
        try:
            await asyncio.to_thread(clear, self._directory)
            async with self._sockets.serve(self._directory / SOCKET, methods.REGISTRATION, handlers):
                await asyncio.Event().wait()
        except OSError as error:
            log.warning("cannot listen for device plugins", extra={"error": str(error)})
            await asyncio.Event().wait()

    def expect(self, names: Iterable[str]) -> None:
        """These resources were registered before; their plugins have the grace period to register again."""
        for name in names:
            self.resources.setdefault(name, Resource(name))

    async def _on_register(self, request: pb.RegisterRequest) -> pb.Empty:
        try:
            check_version(request.version)
            check_resource(request.resource_name)
            socket = socket_of(request.endpoint, self._directory)
            await self._take(request.resource_name, socket, request.options)
        except RpcError as error:
            log.warning("rejected device plugin", extra={"resource": request.resource_name, "error": str(error)})
            raise
        return pb.Empty()

    async def register(self, plugin: Announced) -> None:
        """Register a plugin that the plugin manager found. Raises Refused."""
        try:
            check_version(*plugin.versions)
            check_resource(plugin.name)
            if not plugin.endpoint.is_absolute():
                raise InvalidArgument(f'the endpoint "{plugin.endpoint}" is invalid: expected an absolute path')
            await self._take(plugin.name, plugin.endpoint, pb.DevicePluginOptions())
        except RpcError as error:
            raise Refused(str(error)) from error

    def deregister(self, plugin: Announced) -> None:
        resource = self.resources.get(plugin.name)
        if resource is None or resource.plugin is None or resource.plugin.socket != plugin.endpoint:
            return
        self._stop(plugin.name)
        if self._tasks is not None:
            self._running[plugin.name] = self._tasks.create_task(self._after_grace(resource))

    async def _take(self, name: str, socket: Path, options: pb.DevicePluginOptions) -> None:
        if self._tasks is None:
            raise Unavailable("the kubelet is starting")
        try:
            await self._add_resource(name)
        except OSError as error:
            raise Unavailable(f"cannot record resource {name}: {error}") from error
        if (group := self._tasks) is None:
            raise Unavailable("the kubelet is ending")
        resource = self.resources.setdefault(name, Resource(name, published=False))
        other = resource.plugin
        if other is not None and not other.gone and other.socket != socket:
            raise AlreadyExists(f'the ResourceName "{name}" is taken by the device plugin at {other.socket}')
        self._stop(name)
        resource.plugin = Plugin(self._sockets, self._limits, name, socket, options, self._listed)
        resource.listed = False
        running = self._run_plugin(resource, resource.plugin)
        self._running[name] = group.create_task(running, name=f"device plugin of {name}")
        log.info("registered device plugin", extra={"resource": name, "socket": str(socket)})

    def _stop(self, name: str) -> None:
        if (task := self._running.pop(name, None)) is not None:
            task.cancel()

    async def _run_plugin(self, resource: Resource, plugin: Plugin) -> None:
        try:
            await plugin.run()
        finally:
            if resource.plugin is plugin:
                self._changed(resource, resource.pool.lose())
        await self._after_grace(resource)

    async def _after_grace(self, resource: Resource) -> None:
        """The Node drops a resource whose plugin does not come back within the grace period."""
        await asyncio.sleep(self._grace)
        if not resource.ready:
            resource.published = False
            log.info("removed resource of device plugin that is gone", extra={"resource": resource.name})
            self._changed(resource, resource.pool.update({}))

    def _listed(self, plugin: Plugin, devices: dict[str, Device]) -> None:
        resource = self.resources[plugin.resource]
        if resource.plugin is plugin:
            first, resource.listed, resource.published = not resource.listed, True, True
            changed = resource.pool.update(devices)
            if first or changed:
                self._changed(resource, changed)


def clear(directory: Path) -> None:
    """Remove all sockets; creates the directory if it does not exist. Raises OSError."""
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    for path in directory.iterdir():
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink(missing_ok=True)


def is_extended(name: str) -> bool:
    """Whether it is an extended resource: not in a domain of Kubernetes."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return not qualified_name(f"requests.{name}")  # so that a quota can name it


def check_resource(name: str) -> None:
    """Raises InvalidArgument."""
    if not is_extended(name):
        expected = "expected DOMAIN/NAME, with a domain that is not Kubernetes' own"
        raise InvalidArgument(f'the ResourceName "{name}" is invalid: {expected}')


def check_version(*versions: str) -> None:
    """One of the plugin's versions must be supported. Raises InvalidArgument."""
    if VERSION not in versions:
        requested = ", ".join(versions)
        raise InvalidArgument(
            f'requested API version "{requested}" is not supported by kubelet. Supported version is "{VERSION}"'
        )


def socket_of(endpoint: str, directory: Path) -> Path:
    """The socket that a plugin names by its file name alone. Raises InvalidArgument."""
    if not endpoint or endpoint in (".", "..", SOCKET) or "/" in endpoint or "\0" in endpoint:
        raise InvalidArgument(f'the endpoint "{endpoint}" is invalid: expected the name of a socket in {directory}')
    path = directory / endpoint
    if (size := len(os.fsencode(path))) > MAX_PATH:
        raise InvalidArgument(f'the endpoint "{endpoint}" is invalid: {path} has {size} bytes, the limit is {MAX_PATH}')
    return path
