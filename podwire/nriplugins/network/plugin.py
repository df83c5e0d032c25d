"""The hooks: what the runtime asks at the beginning and the end of a pod, and what there is when it connects."""

import asyncio
import logging
from collections.abc import Sequence

from podwire.nri import Plugin, Updates, pb
from podwire.nriplugins.network.informers import Informers
from podwire.nriplugins.network.kinds import CUSTOM, PODS, POLICIES
from podwire.nriplugins.network.metrics import Meter
from podwire.nriplugins.network.named_resources import NamedReader, Read, cached
from podwire.nriplugins.network.ports import Now, Trace
from podwire.nriplugins.network.reconciler import NetworkReconciler
from podwire.nriplugins.network.sandbox import Sandbox, local_of
from podwire.protocols.grpc_status import Unavailable

_log = logging.getLogger("podwire.nriplugins.network")

WELCOME = 1.0
"""Seconds that a runtime is kept waiting for pods that were there before; whoever answers too late is not let in."""
_KINDS = {each.kind: each for each in CUSTOM}
PATIENCE = 1.5
"""Seconds that a new pod waits for the first listings; runtimes wait two for the answer."""


class NetworkPlugin(Plugin):
    """Policies, routes and mesh of a node's pods, from the resources of the API server."""

    name = "nri-network"
    index = "50"

    def __init__(
        self,
        keeper: NetworkReconciler,
        watches: Informers,
        reader: NamedReader,
        *,
        trace: Trace,
        meter: Meter,
        now: Now,
    ) -> None:
        self._keeper, self._watches, self._reader = keeper, watches, reader
        self._trace, self._meter, self._now = trace, meter, now

    async def synchronize(self, pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> Updates | None:  # noqa: ARG002 - a hook is given what it is given
        found = [local for each in pods if (local := local_of(each, self.netns_of(each))) is not None]
        await self._keeper.resume(found, self._pod_of)
        if self._watches.complete.is_set() and not await self._keeper.caught_up(WELCOME):
            _log.info("pods that were there before are not all looked at yet", extra={"pods": len(found)})
        return None

    async def pod_vanished(self, pod: pb.PodSandbox) -> None:
        await self._dismiss(pod)

    async def run_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        begun = self._now()
        local = local_of(pod, self.netns_of(pod))
        if local is None:
            return
        try:
            await self._wait_until_known()
            local.learn(self._pod_of(local))
            reads = await self._reader.read(local.uid, local.planned)
            with self._trace.configures(local.uid, "set policies, routes, mesh"):
                await self._keeper.admit(local, reads)
                self._tell_copies(local, reads)
            if local.learn(self._pod_of(local)):
                self._keeper.refit(local)
        finally:
            self._meter.hook("RunPodSandbox", self._now() - begun)

    def _tell_copies(self, local: Sandbox, reads: Sequence[Read]) -> None:
        """What was decided by copies, and how new they were."""
        asked = {(each.kind, each.name) for each in reads}
        selected = [(_KINDS[each.kind], each.name) for each in self._keeper.chosen(local)]
        for kind, name in [*((POLICIES, each) for each in sorted(local.policies)), *selected]:
            found = self._watches.find(kind, local.namespace, name)
            if found is not None and (kind, name) not in asked:
                with self._trace.configures(local.uid, cached(kind, name, found)):
                    pass

    async def stop_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        begun = self._now()
        try:
            await self._dismiss(pod)
        finally:
            self._meter.hook("StopPodSandbox", self._now() - begun)

    async def _dismiss(self, pod: pb.PodSandbox) -> None:
        local = local_of(pod, self.netns_of(pod))
        if local is not None:
            await self._keeper.dismiss(local)

    async def _wait_until_known(self) -> None:
        """A pod whose policies nobody knows does not start."""
        if self._watches.complete.is_set():
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self._watches.complete.wait()
        except TimeoutError:
            missing = ", ".join(self._watches.missing)
            raise Unavailable(f"the API server has not told of {missing} yet; the pod is tried again") from None

    def _pod_of(self, local: Sandbox) -> dict[str, object] | None:
        return self._watches.find(PODS, local.namespace, local.name)
