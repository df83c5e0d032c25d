"""How the runtime is, asked when there is a reason to: it came back, its network's files changed, something failed."""

import asyncio
import contextlib
import logging

from podwire.kubelet.node import NodeAgent, readiness
from podwire.kubelet.pods.dependencies import Kit
from podwire.kubelet.pods.pod_workers import PodWorkers
from podwire.objects.nodes import ContainerImage
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError

log = logging.getLogger(__name__)

ASK_SECONDS = 10.0
AGAIN_SECONDS = 0.25, 5.0
"""A runtime that is not ready may notice by itself that it is: asked again after so long, then ever more rarely."""
NOW_AND_THEN_SECONDS = 30.0
"""A runtime that is ready may stop being so without telling anybody."""


class RuntimeHealth:
    def __init__(self, kit: Kit, node: NodeAgent, workers: PodWorkers) -> None:
        self._kit = kit
        self._node = node
        self._workers = workers
        self._reason = asyncio.Event()
        self._here = False
        self._pause = AGAIN_SECONDS[0]
        self.known = asyncio.Event()
        """How the runtime is, or that it is not there."""

    def came(self) -> None:
        """The runtime answers (again)."""
        if not self._here:
            self._here = True
            self.look()

    def went(self, why: str) -> None:
        self._here = False
        self._node.runtime_is(False, "KubeletNotReady", f"container runtime is down: {why}")
        self.known.set()

    def look(self) -> None:
        """There is a reason to ask how it is."""
        self._pause = AGAIN_SECONDS[0]
        self._reason.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        pause: float | None = None
        while True:
            await self._a_reason(pause)
            ready = False
            if self._here:
                try:
                    ready = await self._ask()
                    self.known.set()
                except RpcError as error:
                    log.info("runtime does not tell how it is", extra={"why": str(error)})
            pause = NOW_AND_THEN_SECONDS if ready else self._pause
            self._pause = min(self._pause * 2, AGAIN_SECONDS[1])

    async def _a_reason(self, within: float | None) -> None:
        """Somebody gives one, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._reason.wait()
        self._reason.clear()

    async def _ask(self) -> bool:
        cri = self._kit.cri
        version = await cri.call(methods.VERSION, pb.VersionRequest(version="0.1.0"), timeout=ASK_SECONDS)
        self._kit.runtime_name = version.runtime_name
        self._node.runtime_version(version.runtime_name, version.runtime_version)
        self._node.images_are(await self._images())
        answer = await cri.call(methods.STATUS, pb.StatusRequest(), timeout=ASK_SECONDS)
        self._kit.recursive_read_only = any(
            each.features.recursive_read_only_mounts for each in answer.runtime_handlers
        )
        now = readiness(answer.status)
        self._network(answer.status)
        self._node.runtime_is(now.ready, now.reason, now.message)
        return now.ready

    async def _images(self) -> list[ContainerImage]:
        answer = await self._kit.cri.call(methods.LIST_IMAGES, pb.ListImagesRequest(), timeout=ASK_SECONDS)
        return [
            ContainerImage(names=(*each.repo_digests, *each.repo_tags), size_bytes=each.size) for each in answer.images
        ]

    def _network(self, status: pb.RuntimeStatus) -> None:
        condition = next((each for each in status.conditions if each.type == "NetworkReady"), None)
        trouble = "" if condition is None or condition.status else _told(condition)
        before, self._kit.network_trouble = self._kit.network_trouble, trouble
        if before and not trouble:
            self._workers.network_changed()


def _told(condition: pb.RuntimeCondition) -> str:
    return (
        f"container runtime network not ready: NetworkReady=false reason:{condition.reason} message:{condition.message}"
    )
