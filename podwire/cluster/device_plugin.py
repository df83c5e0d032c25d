"""Runs the device plugin next to any kubelet, over its two sockets."""

import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from podwire.cluster.health_endpoints import answer_health
from podwire.deviceplugin import Config, Paths, Plugin
from podwire.deviceplugin.cdi import HOOK_NAME
from podwire.deviceplugin.ports import Incarnation
from podwire.linux.fs.trust import make_directory
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.deviceplugin.methods import PLUGIN, REGISTER
from podwire.protocols.grpc_methods import Handler
from podwire.protocols.podresources import podresources_pb2 as resources
from podwire.protocols.podresources.methods import LIST
from podwire.shim import install_hook
from podwire.transports import grpc_client, grpc_server, http_server

REGISTER_SECONDS = 10.0
LIST_SECONDS = 5.0
GRACE_SECONDS = 1.0
"""Time for running calls when a socket is closed."""

SWITCH_SECONDS = 0.0005
"""The longest time for which listing many links delays a kubelet's call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the device plugin, as on the command line."""

    config: Config
    state: Path
    device_plugins: Path
    pod_resources: Path
    cdi: Path
    sysfs: Path
    address: str = "127.0.0.1"
    port: int | None = None
    """Of /metrics, /healthz and /readyz; None serves no HTTP."""


async def run(options: Options) -> None:
    """Works until cancelled. Raises OSError when the links or the state of this machine cannot be used."""
    sys.setswitchinterval(SWITCH_SECONDS)
    make_directory(options.state, 0o700)
    hook = (install_hook(options.state / "bin", HOOK_NAME),) if any(pool.cdi for pool in options.config.pools) else ()
    paths = Paths(
        state=options.state, device_plugins=options.device_plugins, cdi=options.cdi, sysfs=options.sysfs, hook=hook
    )
    plugin = Plugin(options.config, _Kubelet(options), paths)
    async with AsyncExitStack() as stack:
        if options.port is not None:
            server = await http_server.serve(
                lambda request: answer_health(request, plugin.metrics, tuple), host=options.address, port=options.port
            )
            stack.push_async_callback(server.close, GRACE_SECONDS)
        await plugin.run()


class _Kubelet:
    """The kubelet by its sockets. Each call connects anew, so that a restarted kubelet is reached at once."""

    def __init__(self, options: Options) -> None:
        self._registration = options.device_plugins / "kubelet.sock"
        self._resources = options.pod_resources

    async def register(self, request: pb.RegisterRequest) -> None:
        async with grpc_client.connect(self._registration) as client:
            await client.call(REGISTER, request, timeout=REGISTER_SECONDS)

    async def held(self) -> Mapping[str, frozenset[str]]:
        async with grpc_client.connect(self._resources) as client:
            response = await client.call(LIST, resources.ListPodResourcesRequest(), timeout=LIST_SECONDS)
        return devices_of(response)

    def incarnation(self) -> Incarnation | None:
        """Kubelets make this socket anew whenever they start."""
        try:
            status = self._resources.stat()
        except OSError:
            return None
        return Incarnation((status.st_ino, status.st_ctime_ns), max(0.0, time.time() - status.st_mtime))

    async def serve(self, path: Path, handlers: Mapping[str, Handler]) -> "_Served":
        return _Served(await grpc_server.serve(path, PLUGIN, handlers))


class _Served:
    def __init__(self, server: grpc_server.GrpcServer) -> None:
        self._server = server

    async def close(self) -> None:
        await self._server.close(GRACE_SECONDS)


def devices_of(response: resources.ListPodResourcesResponse) -> dict[str, frozenset[str]]:
    """Returns the devices that pods have, by resource."""
    devices: dict[str, set[str]] = {}
    for pod in response.pod_resources:
        for container in pod.containers:
            for device in container.devices:
                devices.setdefault(device.resource_name, set()).update(device.device_ids)
    return {name: frozenset(ids) for name, ids in devices.items()}
