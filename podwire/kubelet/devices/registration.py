"""Where device plugins register: the conversation with each, and what becomes of its resource when it goes.

By the kubelet's own socket in the directory of device plugins, or by the registry of all plugins.
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
"""The kubelet's own, in the directory that plugins put theirs into."""
MAX_PATH = 107
"""Bytes that the kernel takes for a socket's path."""

Changed = Callable[[Resource, set[str]], None]
"""Told of a resource that came or changed, and of the ids whose devices did."""


class DevicePluginRegistry:
    """`run` is the parent of all conversations. `know` is awaited before a new resource is taken."""

    def __init__(
        self,
        door: PluginSockets,
        directory: Path,
        *,
        grace: float,
        limits: Limits,
        changed: Changed,
        know: Callable[[str], Awaitable[None]],
    ) -> None:
        self._door = door
        self._directory = directory
        self._grace = grace
        self._limits = limits
        self._changed = changed
        self._know = know
        self._talks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self.resources: dict[str, Resource] = {}

    async def run(self) -> None:
        """Talk until cancelled; who comes by the registry of plugins need not wait for the socket."""
        async with asyncio.TaskGroup() as group:
            for each in self.resources.values():
                self._talks[each.name] = group.create_task(self._after_grace(each), name=f"grace of {each.name}")
            self._group = group
            try:
                await self._listen()
            finally:
                self._group = None  # the registry of plugins may end later, and take its leave of each

    async def _listen(self) -> None:
        """1. Remove the sockets of before, so that plugins notice.  2. Listen, where there can be a socket."""
        handlers = {methods.REGISTER.name: self._on_register}
        try:
            await asyncio.to_thread(clear, self._directory)
            async with self._door.serve(self._directory / SOCKET, methods.REGISTRATION, handlers):
                await asyncio.Event().wait()
        except OSError as error:
            log.warning("device plugins cannot register", extra={"why": str(error)})
            await asyncio.Event().wait()

    def expect(self, names: Iterable[str]) -> None:
        """Plugins brought these before; they have so much time to come again."""
        for name in names:
            self.resources.setdefault(name, Resource(name))

    async def _on_register(self, request: pb.RegisterRequest) -> pb.Empty:
        try:
            check_version(request.version)
            check_resource(request.resource_name)
            socket = socket_of(request.endpoint, self._directory)
            await self._take(request.resource_name, socket, request.options)
        except RpcError as error:
            log.warning("device plugin refused", extra={"resource": request.resource_name, "why": str(error)})
            raise
        return pb.Empty()

    async def register(self, plugin: Announced) -> None:
        """One that came by the registry of plugins. Refused."""
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
        self._end_talk(plugin.name)
        if self._group is not None:
            self._talks[plugin.name] = self._group.create_task(self._after_grace(resource))

    async def _take(self, name: str, socket: Path, options: pb.DevicePluginOptions) -> None:
        if self._group is None:
            raise Unavailable("the kubelet is starting")
        try:
            await self._know(name)
        except OSError as error:
            raise Unavailable(f"it cannot be written down that there is {name}: {error}") from error
        if (group := self._group) is None:
            raise Unavailable("the kubelet is ending")
        resource = self.resources.setdefault(name, Resource(name, told=False))
        other = resource.plugin
        if other is not None and not other.gone and other.socket != socket:
            raise AlreadyExists(f'the ResourceName "{name}" is taken: the device plugin at {other.socket} brings it')
        self._end_talk(name)
        resource.plugin = Plugin(self._door, self._limits, name, socket, options, self._listed)
        resource.listed = False
        talk = self._talk(resource, resource.plugin)
        self._talks[name] = group.create_task(talk, name=f"device plugin of {name}")
        log.info("device plugin registered", extra={"resource": name, "socket": str(socket)})

    def _end_talk(self, name: str) -> None:
        if (talk := self._talks.pop(name, None)) is not None:
            talk.cancel()

    async def _talk(self, resource: Resource, plugin: Plugin) -> None:
        try:
            await plugin.run()
        finally:
            if resource.plugin is plugin:
                self._changed(resource, resource.pool.lose())
        await self._after_grace(resource)

    async def _after_grace(self, resource: Resource) -> None:
        """The Node does not name for ever what nobody brings any more."""
        await asyncio.sleep(self._grace)
        if not resource.ready:
            resource.told = False
            log.info("resource removed, its device plugin has not come back", extra={"resource": resource.name})
            self._changed(resource, resource.pool.update({}))

    def _listed(self, plugin: Plugin, devices: dict[str, Device]) -> None:
        resource = self.resources[plugin.resource]
        if resource.plugin is plugin:
            first, resource.listed, resource.told = not resource.listed, True, True
            changed = resource.pool.update(devices)
            if first or changed:
                self._changed(resource, changed)


def clear(directory: Path) -> None:
    """Remove all sockets, make the directory if it is not there. OSError."""
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    for each in directory.iterdir():
        if stat.S_ISSOCK(each.lstat().st_mode):
            each.unlink(missing_ok=True)


def is_extended(name: str) -> bool:
    """A resource that is none of Kubernetes' own, so that somebody else may bring it."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return not qualified_name(f"requests.{name}")  # so that a quota can name it


def check_resource(name: str) -> None:
    """InvalidArgument."""
    if not is_extended(name):
        why = "expected DOMAIN/NAME, with a domain that is not Kubernetes' own"
        raise InvalidArgument(f'the ResourceName "{name}" is invalid: {why}')


def check_version(*versions: str) -> None:
    """One of those that a plugin speaks must be ours. InvalidArgument."""
    if VERSION not in versions:
        told = ", ".join(versions)
        raise InvalidArgument(
            f'requested API version "{told}" is not supported by kubelet. Supported version is "{VERSION}"'
        )


def socket_of(endpoint: str, directory: Path) -> Path:
    """The socket that a plugin names by its file name alone. InvalidArgument."""
    if not endpoint or endpoint in (".", "..", SOCKET) or "/" in endpoint or "\0" in endpoint:
        raise InvalidArgument(f'the endpoint "{endpoint}" is invalid: expected the name of a socket in {directory}')
    path = directory / endpoint
    if (size := len(os.fsencode(path))) > MAX_PATH:
        raise InvalidArgument(f'the endpoint "{endpoint}" is invalid: {path} has {size} bytes, and {MAX_PATH} is all')
    return path
