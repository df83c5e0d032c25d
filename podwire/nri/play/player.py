"""Plays a script: each step is what a runtime would do, with the cleanup that follows a hook's error."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from podwire.nri.play.expectations import DISCONNECTED, check_step
from podwire.nri.play.node import PlayedContainer, PlayedNode, PlayedPod
from podwire.nri.play.outcome import Outcome, Written
from podwire.nri.play.plugin import How
from podwire.nri.play.script import REGISTER, Script, Step, lived
from podwire.nri.play.setup import NotReady, Setup, staged
from podwire.nri.proxy import Exchange, Noted
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAdjustment

Told = Callable[[Outcome], None]


class Failed(AssertionError):
    """Expectations were not met; says which."""


@dataclass(slots=True)
class Result:
    """The outcome of a script."""

    source: str
    plugin: str = ""
    steps: list[Outcome] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        return [f"{_where(each.step)}{why}" for each in self.steps for why in each.failures]

    @property
    def ok(self) -> bool:
        return not self.failures

    def check(self) -> None:
        """Raises Failed."""
        if self.failures:
            raise Failed("\n".join(self.failures))

    def step(self, title: str) -> Outcome:
        """The first step of this title: `create web/app`. Raises KeyError."""
        for each in self.steps:
            if each.step.title == title:
                return each
        raise KeyError(title)


def _where(step: Step) -> str:
    return f"{step.where}: {step.title}: " if step.where else f"{step.title}: "


async def play(script: Script, how: How, told: Told = lambda _: None) -> Result:
    """Plays a script to its end; failures are in the result and are not raised."""
    world = PlayedNode(script.pods)
    world.fill(script.node)
    result = Result(script.source)
    async with staged(script, how, world) as stage:
        player = _Player(world, stage)
        for each in (Step(verb=REGISTER, expect=script.register), *script.steps):
            done = await player.play(each)
            result.steps.append(done)
            told(done)
            if each.verb == REGISTER:
                result.plugin, _ = done.registered()
                if not done.connected:
                    break
    return result


class _Player:
    def __init__(self, world: PlayedNode, stage: Setup) -> None:
        self._world, self._stage = world, stage
        self._was_connected = True
        self._verbs: dict[str, Callable[[Step, Outcome], Awaitable[None]]] = {
            REGISTER: lambda _step, _done: stage.start_plugin(),
            "run": self._run,
            "update-pod": self._update_pod,
            "create": self._create,
            "start": self._start,
            "update": self._update,
            "stop": self._stop,
            "remove": self._remove,
            "life": self._life,
            "restart-runtime": lambda _step, _done: stage.restart_runtime(),
            "restart-plugin": lambda _step, _done: stage.restart_plugin(),
            "disconnect": lambda _step, _done: stage.disconnect(),
            "big-node": self._big_node,
            "wait": lambda step, _done: asyncio.sleep(step.number),
        }

    async def play(self, step: Step) -> Outcome:
        done = Outcome(step=step)
        self._stage.seen.clear()
        self._world.updates.clear()
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            await self._verbs[step.verb](step, done)
        except RpcError as error:
            done.error = f"{error.name}: {error}"
        except BadAdjustment as error:
            done.error = f"what the plugin wants cannot be done: {error}"
        except NotReady as error:
            done.why_gone = str(error)
        self._stage.step_is_over()
        done.took = clock() - began
        done.exchanges = [each for each in self._stage.seen if isinstance(each, Exchange)]
        done.notes = [each for each in self._stage.seen if isinstance(each, Noted)]
        done.updates = list(self._world.updates)
        self._check_step(done)
        return done

    def _check_step(self, done: Outcome) -> None:
        """A lost plugin is reported once, by the step in which it was lost."""
        done.connected = bool(self._stage.host.active()) and not done.why_gone
        if not done.connected:
            done.why_gone = done.why_gone or self._stage.why_gone()
        named = [each.get("container_id", "") for each in done.step.expect.updates or ()]
        failures = check_step(done, {each: self._world.id_of(each) for each in named})
        if not done.connected and not self._was_connected:
            failures = [each for each in failures if not each.startswith(DISCONNECTED)]
        self._was_connected = done.connected
        done.failures = failures

    # Pods.

    async def _run(self, step: Step, _done: Outcome) -> None:
        pod = self._world.pods[step.pod]
        try:
            await self._stage.host.run_pod_sandbox(pod.described)
        except RpcError:
            await self._stage.host.stop_pod_sandbox(pod.described)
            await self._stage.host.remove_pod_sandbox(pod.described)
            raise
        pod.exists = True

    async def _update_pod(self, step: Step, _done: Outcome) -> None:
        pod, resources = self._world.pods[step.pod], step.resources or pb.LinuxResources()
        await self._stage.host.update_pod_sandbox(pod.described, pb.LinuxResources(), resources)
        pod.described.linux.resources.CopyFrom(resources)
        await self._stage.host.post_update_pod_sandbox(pod.described)

    async def _big_node(self, step: Step, _done: Outcome) -> None:
        self._world.fill(int(step.number))
        await self._stage.restart_runtime()

    async def _life(self, step: Step, done: Outcome) -> None:
        for each in lived(step.pod, list(self._world.pods[step.pod].containers)):
            await self._verbs[each.verb](each, done)

    # Containers.

    def _found(self, step: Step) -> tuple[PlayedPod, PlayedContainer]:
        pod = self._world.pods[step.pod]
        return pod, pod.containers[step.container]

    async def _create(self, step: Step, done: Outcome) -> None:
        host = self._stage.host
        pod, container = self._found(step)
        container.state, container.spec = pb.CONTAINER_UNKNOWN, container.default
        try:
            adjusted = await host.create_container(pod.described, container.described())
            done.adjust = adjusted.adjust
            container.adjust(adjusted.adjust)
        except (RpcError, BadAdjustment):
            await host.remove_container(pod.described, container.described())
            raise
        done.written.append(Written(container=container.name, before=container.default, after=container.spec))
        container.exists, container.state = True, pb.CONTAINER_CREATED
        await host.post_create_container(pod.described, container.described())

    async def _start(self, step: Step, _done: Outcome) -> None:
        host = self._stage.host
        pod, container = self._found(step)
        try:
            await host.start_container(pod.described, container.described())
        except RpcError:
            container.state = pb.CONTAINER_STOPPED
            await host.stop_container(pod.described, container.described())
            raise
        container.state = pb.CONTAINER_RUNNING
        await host.post_start_container(pod.described, container.described())

    async def _update(self, step: Step, done: Outcome) -> None:
        pod, container = self._found(step)
        before = container.spec
        asked = step.resources or pb.LinuxResources()
        decided = await self._stage.host.update_container(pod.described, container.described(), asked)
        container.update(decided)
        done.written.append(Written(container=container.name, before=before, after=container.spec))
        await self._stage.host.post_update_container(pod.described, container.described())

    async def _stop(self, step: Step, _done: Outcome) -> None:
        if not step.container:
            await self._stage.host.stop_pod_sandbox(self._world.pods[step.pod].described)
            return
        pod, container = self._found(step)
        container.state = pb.CONTAINER_STOPPED
        await self._stage.host.stop_container(pod.described, container.described())

    async def _remove(self, step: Step, _done: Outcome) -> None:
        pod = self._world.pods[step.pod]
        if not step.container:
            await self._stage.host.remove_pod_sandbox(pod.described)
            pod.exists = False
            return
        container = pod.containers[step.container]
        container.state = pb.CONTAINER_STOPPED
        await self._stage.host.remove_container(pod.described, container.described())
        container.exists = False
