"""The NRI hooks of the network plugin: RunPodSandbox, StopPodSandbox and Synchronize."""

import asyncio
import logging
from collections.abc import Sequence

from podwire.nri import Plugin, Updates, pb
from podwire.nriplugins.network.informers import Informers
from podwire.nriplugins.network.kinds import ADMIN_KINDS, CUSTOM, PODS, POLICIES
from podwire.nriplugins.network.metrics import Meter
from podwire.nriplugins.network.named_resources import NamedReader, Read, cached
from podwire.nriplugins.network.ports import DEFAULT_LIMITS, Limits, Now, Trace
from podwire.nriplugins.network.reconciler import NetworkReconciler
from podwire.nriplugins.network.sandbox import Sandbox, sandbox_from
from podwire.protocols.grpc_status import Unavailable

_log = logging.getLogger("podwire.nriplugins.network")

_KINDS = {kind.kind: kind for kind in (*CUSTOM, *ADMIN_KINDS)}


class NetworkPlugin(Plugin):
    """Policies, routes and mesh of a node's pods, from the resources of the API server."""

    name = "nri-network"
    index = "50"

    def __init__(
        self,
        reconciler: NetworkReconciler,
        informers: Informers,
        reader: NamedReader,
        *,
        trace: Trace,
        meter: Meter,
        now: Now,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._reconciler, self._informers, self._reader = reconciler, informers, reader
        self._trace, self._meter, self._now, self._limits = trace, meter, now, limits

    async def synchronize(self, pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> Updates | None:  # noqa: ARG002 - the hook's signature
        sandboxes = [sandbox for pod in pods if (sandbox := sandbox_from(pod, self.netns_of(pod))) is not None]
        await self._reconciler.synchronize_pods(sandboxes, self._pod_of)
        if self._informers.complete.is_set() and not await self._reconciler.caught_up(self._limits.synchronize):
            _log.info("existing pods are still being reconciled", extra={"pods": len(sandboxes)})
        return None

    async def pod_vanished(self, pod: pb.PodSandbox) -> None:
        await self._stop_pod(pod)

    async def run_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        begun = self._now()
        sandbox = sandbox_from(pod, self.netns_of(pod))
        if sandbox is None:
            return
        try:
            await self._wait_for_lists()
            sandbox.update_from(self._pod_of(sandbox))
            reads = await self._reader.read(sandbox.uid, sandbox.planned)
            with self._trace.configures(sandbox.uid, "set policies, routes, mesh"):
                await self._reconciler.run_pod(sandbox, reads)
                self._trace_cached(sandbox, reads)
            if sandbox.update_from(self._pod_of(sandbox)):
                self._reconciler.recheck(sandbox)
        finally:
            self._meter.hook("RunPodSandbox", self._now() - begun)

    def _trace_cached(self, sandbox: Sandbox, reads: Sequence[Read]) -> None:
        """Traces the cached objects that decided, with their resource versions."""
        asked = {(read.kind, read.name) for read in reads}
        selected = [(_KINDS[resource.kind], resource.name) for resource in self._reconciler.selected_resources(sandbox)]
        policies = [(POLICIES, policy) for policy in sorted(sandbox.policies)]
        policies += [(_KINDS[kind], name) for kind, name in sorted(sandbox.admin_policies)]
        for kind, name in (*policies, *selected):
            object_ = self._informers.find(kind, sandbox.namespace if kind.namespaced else "", name)
            if object_ is not None and (kind, name) not in asked:
                with self._trace.configures(sandbox.uid, cached(kind, name, object_)):
                    pass

    async def stop_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        begun = self._now()
        try:
            await self._stop_pod(pod)
        finally:
            self._meter.hook("StopPodSandbox", self._now() - begun)

    async def _stop_pod(self, pod: pb.PodSandbox) -> None:
        sandbox = sandbox_from(pod, self.netns_of(pod))
        if sandbox is not None:
            await self._reconciler.stop_pod(sandbox)

    async def _wait_for_lists(self) -> None:
        """Fails closed: a pod does not start before its policies are known."""
        if self._informers.complete.is_set():
            return
        try:
            async with asyncio.timeout(self._limits.lists):
                await self._informers.complete.wait()
        except TimeoutError:
            missing = ", ".join(self._informers.missing)
            raise Unavailable(f"waiting for the API server to list {missing}; the pod is retried") from None

    def _pod_of(self, sandbox: Sandbox) -> dict[str, object] | None:
        return self._informers.find(PODS, sandbox.namespace, sandbox.name)
