"""Plays a script: each step is what a runtime would do, with the cleanup that follows a hook's error."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from podwire.nri.play.expectations import DISCONNECTED, check_step
from podwire.nri.play.node import PlayedContainer, PlayedNode, PlayedPod
from podwire.nri.play.outcome import Outcome, Written
from podwire.nri.play.plugin import How
from podwire.nri.play.script import REGISTER, Script, Step, lived
from podwire.nri.play.setup import NotReady, Setup, opened
from podwire.nri.proxy import Exchange, Noted
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.errors import BadAdjustment

OnStep = Callable[[Outcome], None]


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
        return [f"{_where(outcome.step)}{why}" for outcome in self.steps for why in outcome.failures]

    @property
    def ok(self) -> bool:
        return not self.failures

    def check(self) -> None:
        """Raises Failed."""
        if self.failures:
            raise Failed("\n".join(self.failures))

    def step(self, title: str) -> Outcome:
        """The first step of this title: `create web/app`. Raises KeyError."""
        for outcome in self.steps:
            if outcome.step.title == title:
                return outcome
        raise KeyError(title)


def _where(step: Step) -> str:
    return f"{step.where}: {step.title}: " if step.where else f"{step.title}: "


async def play(script: Script, how: How, on_step: OnStep = lambda _: None) -> Result:
    """Plays a script to its end; failures are in the result and are not raised."""
    node = PlayedNode(script.pods)
    node.fill(script.node)
    result = Result(script.source)
    async with opened(script, how, node) as setup:
        player = _Player(node, setup)
        for step in (Step(verb=REGISTER, expect=script.register), *script.steps):
            done = await player.play(step)
            result.steps.append(done)
            on_step(done)
            if step.verb == REGISTER:
                result.plugin, _ = done.registered()
                if not done.connected:
                    break
    return result


class _Player:
    def __init__(self, node: PlayedNode, setup: Setup) -> None:
        self._node, self._setup = node, setup
        self._was_connected = True
        self._verbs: dict[str, Callable[[Step, Outcome], Awaitable[None]]] = {
            REGISTER: lambda _step, _done: setup.start_plugin(),
            "run": self._run,
            "update-pod": self._update_pod,
            "create": self._create,
            "start": self._start,
            "update": self._update,
            "stop": self._stop,
            "remove": self._remove,
            "life": self._life,
            "restart-runtime": lambda _step, _done: setup.restart_runtime(),
            "restart-plugin": lambda _step, _done: setup.restart_plugin(),
            "disconnect": lambda _step, _done: setup.disconnect(),
            "big-node": self._big_node,
            "wait": lambda step, _done: asyncio.sleep(step.number),
        }

    async def play(self, step: Step) -> Outcome:
        done = Outcome(step=step)
        self._setup.seen.clear()
        self._node.updates.clear()
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
        self._setup.step_is_over()
        done.took = clock() - began
        done.exchanges = [exchange for exchange in self._setup.seen if isinstance(exchange, Exchange)]
        done.notes = [note for note in self._setup.seen if isinstance(note, Noted)]
        done.updates = list(self._node.updates)
        # A lost plugin is reported once, by the step in which it was lost.
        done.connected = bool(self._setup.host.active()) and not done.why_gone
        if not done.connected:
            done.why_gone = done.why_gone or self._setup.why_gone()
        named = [update.get("container_id", "") for update in done.step.expect.updates or ()]
        failures = check_step(done, {name: self._node.id_of(name) for name in named})
        if not done.connected and not self._was_connected:
            failures = [failure for failure in failures if not failure.startswith(DISCONNECTED)]
        self._was_connected = done.connected
        done.failures = failures
        return done

    # Pods.

    async def _run(self, step: Step, _done: Outcome) -> None:
        pod = self._node.pods[step.pod]
        try:
            await self._setup.host.run_pod_sandbox(pod.described)
        except RpcError:
            await self._setup.host.stop_pod_sandbox(pod.described)
            await self._setup.host.remove_pod_sandbox(pod.described)
            raise
        pod.exists = True

    async def _update_pod(self, step: Step, _done: Outcome) -> None:
        pod, resources = self._node.pods[step.pod], step.resources or pb.LinuxResources()
        await self._setup.host.update_pod_sandbox(pod.described, pb.LinuxResources(), resources)
        pod.described.linux.resources.CopyFrom(resources)
        await self._setup.host.post_update_pod_sandbox(pod.described)

    async def _big_node(self, step: Step, _done: Outcome) -> None:
        self._node.fill(int(step.number))
        await self._setup.restart_runtime()

    async def _life(self, step: Step, done: Outcome) -> None:
        for lived_step in lived(step.pod, list(self._node.pods[step.pod].containers)):
            await self._verbs[lived_step.verb](lived_step, done)

    # Containers.

    def _found(self, step: Step) -> tuple[PlayedPod, PlayedContainer]:
        pod = self._node.pods[step.pod]
        return pod, pod.containers[step.container]

    async def _create(self, step: Step, done: Outcome) -> None:
        host = self._setup.host
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
        host = self._setup.host
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
        decided = await self._setup.host.update_container(pod.described, container.described(), asked)
        container.update(decided)
        done.written.append(Written(container=container.name, before=before, after=container.spec))
        await self._setup.host.post_update_container(pod.described, container.described())

    async def _stop(self, step: Step, _done: Outcome) -> None:
        if not step.container:
            await self._setup.host.stop_pod_sandbox(self._node.pods[step.pod].described)
            return
        pod, container = self._found(step)
        container.state = pb.CONTAINER_STOPPED
        await self._setup.host.stop_container(pod.described, container.described())

    async def _remove(self, step: Step, _done: Outcome) -> None:
        pod = self._node.pods[step.pod]
        if not step.container:
            await self._setup.host.remove_pod_sandbox(pod.described)
            pod.exists = False
            return
        container = pod.containers[step.container]
        container.state = pb.CONTAINER_STOPPED
        await self._setup.host.remove_container(pod.described, container.described())
        container.exists = False
