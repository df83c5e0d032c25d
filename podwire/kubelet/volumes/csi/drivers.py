"""The registered CSI drivers of this node, and the calls to them."""

import asyncio
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from podwire.kubelet.plugin_manager import Announced, Refused
from podwire.kubelet.ports import PluginSockets
from podwire.kubelet.volumes.csi.node_info import NodeInfo
from podwire.objects.names import dns_subdomain
from podwire.protocols.csi import csi_pb2 as pb
from podwire.protocols.csi import methods
from podwire.protocols.grpc_methods import Unary
from podwire.protocols.grpc_status import RpcError, Unavailable
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.status import ApiError

log = logging.getLogger(__name__)

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
Version = tuple[int, ...]

_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?:[-+].*)?")
MAX_NAME, MAX_PATH = 63, 107
"""Limits: characters of a driver's name; bytes of a unix socket's path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiLimits:
    """Timeouts and intervals in seconds."""

    call: float = 120.0
    """For each call to a driver."""
    statistics: float = 10.0
    """For NodeGetVolumeStats: a client of the summary waits for it."""
    republish: float = 60.0
    """Between two calls of NodePublishVolume for drivers with requiresRepublish, and between two looks at whether a
    volume is to be expanded."""


class NotRegistered(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"driver name {name} not found in the list of registered CSI drivers")


class CsiDrivers:
    """A plugin handler. A driver is registered when the API server's CSINode lists it.

    `on_change` is called with the name of a driver that registered.
    """

    def __init__(
        self, sockets: PluginSockets, node_info: NodeInfo, limits: CsiLimits, on_change: Callable[[str], None]
    ) -> None:
        self._sockets = sockets
        self._node_info = node_info
        self._limits = limits
        self._on_change = on_change
        self._drivers: dict[str, tuple[Announced, Version]] = {}
        self._removed: asyncio.Queue[str] = asyncio.Queue()

    async def run(self) -> None:
        """Take deregistered drivers off the CSINode, until cancelled."""
        while True:
            name = await self._removed.get()
            if name in self._drivers:
                continue  # it registered again
            try:
                await self._node_info.remove_driver(name)
            except (ApiError, ClientError) as error:
                log.warning("cannot remove CSI driver from CSINode", extra={"driver": name, "error": str(error)})

    async def register(self, plugin: Announced) -> None:
        """Raises Refused, or RpcError when it may be tried again."""
        version, before = self._check(plugin), self._drivers.get(plugin.name)
        self._drivers[plugin.name] = (plugin, version)
        registered = False
        try:
            info = await self.call(plugin.name, methods.GET_INFO, pb.NodeGetInfoRequest())
            if not info.node_id:
                raise Refused(f"CSI driver {plugin.name}: NodeGetInfo returned an empty node_id")
            await self._node_info.add_driver(plugin.name, info)
            registered = True
        except (ApiError, ClientError) as error:
            raise Unavailable(f"error updating CSINode object with CSI driver node info: {error}") from error
        except ValueError as error:
            raise Refused(str(error)) from error
        finally:
            if not registered:
                del self._drivers[plugin.name]
                if before is not None:
                    self._drivers[plugin.name] = before
        log.info("registered CSI driver", extra={"driver": plugin.name, "endpoint": str(plugin.endpoint)})
        self._on_change(plugin.name)

    def deregister(self, plugin: Announced) -> None:
        known = self._drivers.get(plugin.name)
        if known is not None and known[0] is plugin:
            del self._drivers[plugin.name]
            self._removed.put_nowait(plugin.name)
            log.info("deregistered CSI driver", extra={"driver": plugin.name})

    def __contains__(self, name: str) -> bool:
        return name in self._drivers

    async def call(
        self, name: str, method: Unary[RequestT, ResponseT], request: RequestT, *, seconds: float | None = None
    ) -> ResponseT:
        """Raises NotRegistered, RpcError."""
        if name not in self._drivers:
            raise NotRegistered(name)
        async with self._sockets.connect(self._drivers[name][0].endpoint) as peer:
            return await peer.call(method, request, timeout=self._limits.call if seconds is None else seconds)

    async def capabilities(self, name: str) -> frozenset[int]:
        """Asked for each operation, as upstream does: a driver can be replaced by another version of it at any time.
        Raises NotRegistered, RpcError."""
        response = await self.call(name, methods.GET_CAPABILITIES, pb.NodeGetCapabilitiesRequest())
        return frozenset(capability.rpc.type for capability in response.capabilities)

    def _check(self, plugin: Announced) -> Version:
        described = f"CSI Driver {plugin.name} at endpoint {plugin.endpoint}"
        if wrong := dns_subdomain(plugin.name):
            raise Refused(f"validation failed for {described}: invalid name: {'; '.join(wrong)}")
        if len(plugin.name) > MAX_NAME:
            raise Refused(f"validation failed for {described}: its name has more than {MAX_NAME} characters")
        if not plugin.endpoint.is_absolute() or len(os.fsencode(plugin.endpoint)) > MAX_PATH:
            raise Refused(f"validation failed for {described}: not an absolute path of at most {MAX_PATH} bytes")
        failed = f'validation failed for {described}: kubernetes.io/csi: ValidatePlugin for CSI driver "{plugin.name}"'
        if not plugin.versions:
            raise Refused(f"{failed} failed. Plugin returned an empty list for supported versions")
        matches = [_VERSION.fullmatch(version) for version in plugin.versions]
        versions = [tuple(int(part or 0) for part in match.groups()) for match in matches if match is not None]
        supported = [version for version in versions if version[0] == 1]
        if not supported:
            offered = " ".join(f'"{version}"' for version in plugin.versions)
            raise Refused(f"{failed} failed. None of the versions specified [{offered}] are supported")
        known = self._drivers.get(plugin.name)
        if known is not None and known[1] >= max(supported):
            version = ".".join(map(str, known[1]))
            reason = "Another driver with the same name is already registered with a higher supported version"
            raise Refused(f'{failed} failed. {reason}: "{version}"')
        return max(supported)


def described(error: RpcError) -> str:
    """An error of a driver in the form in which stock kubelets show it."""
    name = {1: "Canceled"}.get(error.code) or error.name.title().replace("_", "")
    return f"rpc error: code = {name} desc = {error}"


def is_final(error: RpcError) -> bool:
    """Whether the operation has failed for sure; with other errors it may still be under way in the driver."""
    return error.name not in ("CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED")
