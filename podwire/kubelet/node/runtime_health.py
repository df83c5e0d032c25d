"""Health of the container runtime, checked when there is a reason: it connected, CNI files changed, a check failed."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass

from podwire.kubelet.node.agent import NodeAgent
from podwire.kubelet.node.conditions import readiness
from podwire.kubelet.pods.limits import RuntimeLimits
from podwire.kubelet.pods.wakeups import Wakeups
from podwire.kubelet.ports import Cri
from podwire.objects.nodes import ContainerImage
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError

log = logging.getLogger(__name__)


@dataclass(slots=True)
class RuntimeInfo:
    """Results of the last check."""

    name: str = "podwire"
    """The scheme of container ids."""
    network_error: str = ""
    """Why pods cannot have a network now; empty when they can."""
    recursive_read_only: bool = False
    """Whether the runtime can make mounts read-only including everything that is mounted below them."""
    user_namespaces: bool = False
    """Whether the runtime supports pods with a user namespace of their own."""


class RuntimeHealth:
    """Updates the RuntimeInfo and the Node's readiness."""

    def __init__(
        self, cri: Cri, node: NodeAgent, wakeups: Wakeups, runtime: RuntimeInfo, limits: RuntimeLimits
    ) -> None:
        self._cri = cri
        self._node = node
        self._wakeups = wakeups
        self._runtime = runtime
        self._limits = limits
        self._reason = asyncio.Event()
        self._connected = False
        self._pause = limits.not_ready[0]
        self._invalid_network = ""
        self.known = asyncio.Event()
        """The first check is done, or the runtime does not answer."""

    def connected(self) -> None:
        """The runtime was listed."""
        if not self._connected:
            self._connected = True
            self.check()

    def disconnected(self, error: str) -> None:
        self._connected = False
        self._node.set_runtime(False, "KubeletNotReady", f"container runtime is down: {error}")
        self.known.set()

    def check(self) -> None:
        """There is a reason to check."""
        self._pause = self._limits.not_ready[0]
        self._reason.set()

    async def run(self) -> None:
        """Check until cancelled."""
        pause: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._reason.wait()
            self._reason.clear()
            ready = False
            if self._connected:
                try:
                    ready = await self._check()
                    self.known.set()
                except RpcError as error:
                    log.info("cannot check container runtime", extra={"error": str(error)})
            pause = self._limits.ready if ready else self._pause
            self._pause = min(self._pause * 2, self._limits.not_ready[1])

    async def _check(self) -> bool:
        cri, seconds = self._cri, self._limits.call
        version = await cri.call(methods.VERSION, pb.VersionRequest(version="0.1.0"), timeout=seconds)
        self._runtime.name = version.runtime_name
        self._node.set_runtime_version(version.runtime_name, version.runtime_version)
        listed = await cri.call(methods.LIST_IMAGES, pb.ListImagesRequest(), timeout=seconds)
        self._node.set_images(
            ContainerImage(names=(*image.repo_digests, *image.repo_tags), size_bytes=image.size)
            for image in listed.images
        )
        response = await cri.call(methods.STATUS, pb.StatusRequest(), timeout=seconds)
        self._runtime.recursive_read_only = any(
            handler.features.recursive_read_only_mounts for handler in response.runtime_handlers
        )
        self._runtime.user_namespaces = any(handler.features.user_namespaces for handler in response.runtime_handlers)
        before, self._runtime.network_error = self._runtime.network_error, _network_error(response.status)
        if before and not self._runtime.network_error:
            self._wakeups.network_changed()
        self._record_invalid_network(response.status)
        now = readiness(response.status)
        self._node.set_runtime(now.ready, now.reason, now.message)
        return now.ready

    def _record_invalid_network(self, status: pb.RuntimeStatus) -> None:
        """Records an event for a network configuration that became invalid; a network may work nevertheless."""
        conditions = (condition for condition in status.conditions if condition.type == methods.NETWORK_VALID)
        condition = next(conditions, None)
        invalid = condition.message if condition is not None and not condition.status else ""
        if invalid and invalid != self._invalid_network:
            self._node.record("Warning", methods.INVALID_NETWORK, invalid)
        self._invalid_network = invalid


def _network_error(status: pb.RuntimeStatus) -> str:
    condition = next((condition for condition in status.conditions if condition.type == "NetworkReady"), None)
    if condition is None or condition.status:
        return ""
    why = f"NetworkReady=false reason:{condition.reason} message:{condition.message}"
    return f"container runtime network not ready: {why}"
