"""What the runtime has, kept up to date by its events. One that sends none is asked: after each deed, and every second.

A runtime may serve others beside this kubelet: what does not bear its mark is not seen here, and so never ended.
An event is only a hint that something changed: what is true now is asked for by the pod's worker, so that a late event
never overwrites a later answer.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

from podwire.kubelet.pods.observed import (
    NOTHING,
    OWNER,
    UID,
    ObservedContainer,
    ObservedPod,
    Outline,
    Sandbox,
    of_container,
    of_sandbox,
    together,
)
from podwire.kubelet.ports import Cri
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import NotFound, RpcError, Unimplemented

log = logging.getLogger(__name__)

ASK_SECONDS = 10.0
"""How long a runtime may take to tell what it has."""
RELIST_SECONDS = 1.0
"""Between two looks at a runtime that sends no events."""
AFTER_DEED_SECONDS = 0.1
"""Until a pod for which something was done there is looked at again: what was started may have ended at once."""
RECONNECT_SECONDS = 0.1, 1.0
"""First and longest pause until a runtime that went away is called again."""


class RuntimeCache:
    """Tells of changes by pod uid; `came` and `went` are told when the runtime comes and goes, `network_checked` when
    it may have more to say of a sandbox's network than before."""

    def __init__(
        self,
        cri: Cri,
        owner: str,
        changed: Callable[[str], None],
        came: Callable[[], None],
        went: Callable[[str], None],
        network_checked: Callable[[str, str], None] = lambda _uid, _sandbox: None,
    ) -> None:
        self._cri = cri
        self._owner = owner
        self._changed = changed
        self._came = came
        self._went = went
        self._network_checked = network_checked
        self._pods: dict[str, ObservedPod] = {}
        self._done_for: set[str] = set()
        self._held: dict[str, dict[str, pb.ContainerEventResponse]] = {}
        """The last event about each sandbox of pods that are being looked at: what it tells may be in the answer."""
        self._deed = asyncio.Event()
        self._whole_status = True
        self._listening = False
        self._told_of_silence = False
        self._here = False
        """It has told everything since it was called last."""
        self.complete = asyncio.Event()
        """Everything that the runtime has was seen at least once."""

    def observed(self, uid: str) -> ObservedPod:
        return self._pods.get(uid, NOTHING)

    @property
    def uids(self) -> set[str]:
        return set(self._pods)

    @property
    def current(self) -> bool:
        """Whether a pod that was never told of is not there."""
        return self._listening

    def forget(self, uid: str) -> None:
        """All of it was removed."""
        self._pods.pop(uid, None)
        self._done_for.discard(uid)

    async def look(self, uid: str) -> ObservedPod:
        """Ask what is true of one pod now."""
        return self._keep(uid, await self._ask(uid))

    async def look_at(self, uid: str, sandbox: str) -> ObservedPod:
        """As `look`, in one call where the runtime allows it, by somebody who has just done something there."""
        if not self._listening:
            self._done_for.add(uid)
            self._deed.set()
        with self._holding(uid):
            return await self._look_at(uid, sandbox)

    async def _look_at(self, uid: str, sandbox: str) -> ObservedPod:
        if not self._whole_status:
            return await self.look(uid)
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox)
        answer = await self._cri.call(methods.POD_SANDBOX_STATUS, request, timeout=ASK_SECONDS)
        if not answer.timestamp:
            return await self.look(uid)
        before = self.observed(uid)
        others = [each for each in before.sandboxes if each.id != sandbox]
        elsewhere = [each for each in before.containers if each.sandbox != sandbox]
        here = [of_container(each, sandbox) for each in answer.containers_statuses]
        return self._keep(uid, together([*others, of_sandbox(answer.status)], [*elsewhere, *here]))

    async def run(self) -> None:
        """Follow the runtime until cancelled."""
        first, longest = RECONNECT_SECONDS
        pause, why = first, ""
        while True:
            self._here = False
            try:
                await self._follow()
            except RpcError as error:
                self._went(str(error))
                if str(error) != why:  # said once, not with every try
                    why = str(error)
                    log.info("runtime does not answer", extra={"why": why})
            if self._here:
                pause, why = first, ""
            else:
                pause = min(pause * 2, longest)
            await asyncio.sleep(pause)

    async def _follow(self) -> None:
        """A runtime that comes back may be another version of it, so it is asked anew what it can do."""
        self._whole_status = True
        events = self._cri.stream(methods.GET_CONTAINER_EVENTS, pb.GetEventsRequest())
        hints = asyncio.create_task(self._hints(events))
        try:
            await asyncio.sleep(0)  # listens before it lists
            await self._everything()
            self._listening = not hints.done()
            # Two calls may overtake each other: what happened while the runtime began to tell of events is seen by
            # looking once more.
            await asyncio.wait((hints,), timeout=RELIST_SECONDS)
            if not hints.done():
                await self._everything()
            await hints
        except Unimplemented:
            self._listening = False
            if not self._told_of_silence:
                self._told_of_silence = True
                log.warning("the runtime sends no container events; it is asked every second instead")
            await self._relist()
        finally:
            self._listening = False
            hints.cancel()
            await asyncio.gather(hints, return_exceptions=True)

    async def _hints(self, events: AsyncIterator[pb.ContainerEventResponse]) -> None:
        async for event in events:
            sandbox = event.pod_sandbox_status
            uid = sandbox.metadata.uid
            if not uid or not self._owns(sandbox.annotations):
                continue
            if self._is_made_again(uid, event):
                self._network_checked(uid, sandbox.id)
            if uid in self._held:
                self._held[uid][sandbox.id] = event
            else:
                self._hint(uid, event)

    def _is_made_again(self, uid: str, event: pb.ContainerEventResponse) -> bool:
        """Whether a sandbox is told to be made that was seen before."""
        id_ = event.pod_sandbox_status.id
        made = event.container_id == id_ and event.container_event_type == pb.CONTAINER_CREATED_EVENT
        return made and any(each.id == id_ and each.ready for each in self.observed(uid).sandboxes)

    def _hint(self, uid: str, event: pb.ContainerEventResponse) -> None:
        if not self._known(uid, event):
            self._changed(uid)

    @contextlib.contextmanager
    def _holding(self, uid: str) -> Iterator[None]:
        """A deed's own events come while it is looked at, and would have it looked at again."""
        held = self._held.setdefault(uid, {})
        try:
            yield
        finally:
            self._held.pop(uid, None)
            for event in held.values():
                self._hint(uid, event)

    def _owns(self, annotations: Mapping[str, str]) -> bool:
        return annotations.get(OWNER) == self._owner

    def _known(self, uid: str, event: pb.ContainerEventResponse) -> bool:
        """Whether an event tells what was seen already."""
        sandbox = of_sandbox(event.pod_sandbox_status)
        containers = {each.id: of_container(each, sandbox.id) for each in event.containers_statuses}
        observed = self.observed(uid)
        seen = {each.id: each for each in observed.containers if each.sandbox == sandbox.id}
        return sandbox in observed.sandboxes and containers == seen

    async def _relist(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            until = loop.time() + RELIST_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    while True:
                        await self._deed.wait()
                        await asyncio.sleep(AFTER_DEED_SECONDS)
                        await self._look_after_deeds()
            await self._everything()

    async def _look_after_deeds(self) -> None:
        uids, self._done_for = self._done_for, set()
        self._deed.clear()
        for uid in uids:
            if await self._ask(uid) != self.observed(uid):
                self._changed(uid)

    async def _everything(self) -> None:
        """Find out which pods changed; those that are not there any more did, too."""
        sandboxes = await self._call_sandboxes(None)
        containers = await self._call_containers(None)
        uids = {each.id: each.metadata.uid for each in sandboxes}
        listed: dict[str, set[Outline]] = {uid: set() for uid in (*self._pods, *uids.values())}
        for sandbox in sandboxes:
            listed[uids[sandbox.id]].add((sandbox.id, sandbox.state))
        for container in containers:
            if container.pod_sandbox_id in uids:
                listed[uids[container.pod_sandbox_id]].add((container.id, container.state))
        for uid, outline in listed.items():
            if outline == self.observed(uid).outline:
                continue
            if not self.complete.is_set():
                await self.look(uid)
            # Later on this may be older than what a worker has seen meanwhile, so it is only a hint as well.
            self._changed(uid)
        self._here = True
        self.complete.set()
        self._came()

    def _keep(self, uid: str, now: ObservedPod) -> ObservedPod:
        if now == NOTHING:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = now
        return now

    async def _ask(self, uid: str) -> ObservedPod:
        sandboxes: list[Sandbox] = []
        containers: list[ObservedContainer] = []
        listed = await self._call_sandboxes(uid)
        whole = self._whole_status
        for each in listed:
            try:
                request = pb.PodSandboxStatusRequest(pod_sandbox_id=each.id)
                answer = await self._cri.call(methods.POD_SANDBOX_STATUS, request, timeout=ASK_SECONDS)
            except NotFound:
                continue
            sandboxes.append(of_sandbox(answer.status))
            whole = whole and answer.timestamp != 0  # only a runtime that tells containers along with it sets this
            containers += [of_container(status, each.id) for status in answer.containers_statuses]
        if listed and not whole:
            self._whole_status = False
            containers = [each async for each in self._one_by_one(await self._call_containers(uid))]
        return together(sandboxes, containers)

    async def _one_by_one(self, listed: Iterable[pb.Container]) -> AsyncIterator[ObservedContainer]:
        for each in listed:
            try:
                request = pb.ContainerStatusRequest(container_id=each.id)
                answer = await self._cri.call(methods.CONTAINER_STATUS, request, timeout=ASK_SECONDS)
            except NotFound:
                continue
            yield of_container(answer.status, each.pod_sandbox_id)

    async def _call_sandboxes(self, uid: str | None) -> list[pb.PodSandbox]:
        request = pb.ListPodSandboxRequest()
        if uid is not None:
            request.filter.label_selector[UID] = uid
        answer = await self._cri.call(methods.LIST_POD_SANDBOX, request, timeout=ASK_SECONDS)
        return [each for each in answer.items if self._owns(each.annotations)]

    async def _call_containers(self, uid: str | None) -> list[pb.Container]:
        request = pb.ListContainersRequest()
        if uid is not None:
            request.filter.label_selector[UID] = uid
        return list((await self._cri.call(methods.LIST_CONTAINERS, request, timeout=ASK_SECONDS)).containers)
