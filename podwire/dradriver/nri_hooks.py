"""The hooks of NRI: quick, for everything slow is done before the sandbox. Pods without claims cost next to nothing."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from podwire.dradriver.attach.pods import Moving, NotAttached, Sandbox
from podwire.dradriver.claims.allocations import Order, PodRef
from podwire.dradriver.claims.character_devices import character_devices, look
from podwire.dradriver.instances import HOOK_PATIENCE, Busy, Voice
from podwire.dradriver.kit import Kit, orders_in
from podwire.dradriver.names import NRI_INDEX, NRI_NAME
from podwire.dradriver.publish.metrics import Meter
from podwire.nri import Adjustment, Plugin, Runtime, Updates, pb
from podwire.protocols.grpc_status import FailedPrecondition
from podwire.tasks.uncancelled import Uncancelled

_log = logging.getLogger("podwire.dradriver")

WELCOME = 1.0
"""Seconds that a runtime is kept waiting for what happened before; whoever answers too late is not let in."""
INTERFACES = "PODWIRE_NETWORK_INTERFACES"
T = TypeVar("T")


class NetworkDriverPlugin(Plugin):
    """Moves what pods claimed into their sandboxes, and refuses containers of pods that have not got it."""

    name = NRI_NAME
    index = NRI_INDEX

    def __init__(self, kit: Kit, moving: Moving, voice: Voice) -> None:
        self._kit, self._moving, self._voice = kit, moving, voice
        self._uncancelled = Uncancelled()

    async def finish(self, grace: float) -> None:
        """Wait for what was begun."""
        await self._uncancelled.drain(grace)

    async def configure(self, config: str, runtime: Runtime) -> None:  # noqa: ARG002 - a hook is given what it is given
        self._voice.give_up()  # until this connection is one that is asked

    async def synchronize(self, pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> Updates | None:  # noqa: ARG002 - as above
        found = [self._sandbox(each) for each in pods]
        reconciling = asyncio.ensure_future(self._uncancelled.run(self._reconcile(found)))
        done, _ = await asyncio.wait([reconciling], timeout=WELCOME)
        if not done:
            _log.info("pods that were there before are not all looked at yet", extra={"pods": len(found)})
        return None

    async def _reconcile(self, sandboxes: Sequence[Sandbox]) -> None:
        try:
            await self._moving.reconcile(sandboxes)
        except Exception:  # noqa: BLE001 - logged; pods that come next are served all the same
            _log.exception("pods that were there before could not be looked at")

    async def pod_vanished(self, pod: pb.PodSandbox) -> None:
        await self._end(pod)

    async def run_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        if not self._moving.concerns(pod.uid):
            return
        await self._answered("RunPodSandbox", self._attach(self._sandbox(pod)))

    async def create_container(self, pod: pb.PodSandbox, container: pb.Container) -> Adjustment | None:
        if not self._moving.concerns(pod.uid):
            return None
        await self._answered("CreateContainer", self._moving.check(self._sandbox(pod)))
        if not self._voice.mine():
            return None
        orders = orders_in(self._kit.attachments.of_pod(pod.uid))
        return await asyncio.to_thread(adjustment, orders, container)

    async def stop_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        await self._end(pod)

    async def remove_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        await self._end(pod)

    async def _end(self, pod: pb.PodSandbox) -> None:
        """A pod ends, whoever else is at work: who has its claims unprepared brings its devices back."""
        if not self._moving.concerns(pod.uid):
            return
        try:
            await self._answered("StopPodSandbox", self._in_turn(self._moving.detach(self._sandbox(pod))))
        except FailedPrecondition as error:
            _log.warning("a pod's devices are not back yet", extra={"pod": pod.name, "why": str(error)})

    async def _answered(self, method: str, work: Coroutine[Any, Any, T]) -> T:
        meter: Meter = self._kit.meter
        try:
            result = await self._uncancelled.run(work)
        except (NotAttached, Busy) as error:
            meter.answered(method, ok=False)
            raise FailedPrecondition(str(error)) from error
        meter.answered(method, ok=True)
        return result

    async def _attach(self, sandbox: Sandbox) -> None:
        """Raises NotAttached, Busy."""
        try:
            await self._in_turn(self._moving.attach(sandbox))
        except Busy as busy:
            try:
                await self._moving.check(sandbox)  # the instance that is at work may have done it
            except NotAttached:
                raise busy from None

    async def _in_turn(self, work: Coroutine[Any, Any, T]) -> T:
        """Raises Busy."""
        try:
            async with self._kit.lock.held(HOOK_PATIENCE):
                return await work
        finally:
            work.close()  # nothing was done if it was not begun

    def _sandbox(self, pod: pb.PodSandbox) -> Sandbox:
        ref = PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        return Sandbox(id=pod.id, pod=ref, netns=self.netns_of(pod))


def adjustment(orders: Iterable[Order], container: pb.Container) -> Adjustment:
    """Character devices that its claims bring, unless it has them already, and what interfaces there are.

    Raises FailedPrecondition. Blocks.
    """
    found = list(orders)
    made = Adjustment().add_env(INTERFACES, ",".join(each.settings.name for each in found if each.settings.name))
    there = {each.path for each in container.linux.devices}
    for path in character_devices(found):
        if path not in there:
            device = look(path)
            made.add_device(path, major=device.major, minor=device.minor, file_mode=device.mode)
    return made
