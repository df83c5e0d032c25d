"""A kubelet's view of a runtime: one that sends events, one that sends none, one that serves others, too."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from podwire.kubelet.pods.limits import RuntimeLimits
from podwire.kubelet.pods.observed import OWNER, UID
from podwire.kubelet.pods.runtime_cache import RuntimeCache
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import NotFound, Unavailable, Unimplemented
from tests.eventually import eventually_async

ME = "/var/lib/kubelet"
SECONDS = 20.0


class Runtime:
    """Pods in memory, one sandbox each; `old` knows neither events nor containers in a sandbox's status."""

    def __init__(self, *, old: bool) -> None:
        self.old = old
        self.sandboxes: dict[str, pb.PodSandboxStatus] = {}
        self.containers: dict[str, pb.ContainerStatus] = {}
        self.events: asyncio.Queue[pb.ContainerEventResponse] = asyncio.Queue()
        self.calls: list[str] = []
        self.away = False

    def add(self, uid: str, *, owner: str = ME) -> None:
        metadata = pb.PodSandboxMetadata(name=uid, uid=uid)
        self.sandboxes[uid] = pb.PodSandboxStatus(
            id=uid, metadata=metadata, labels={UID: uid}, annotations={OWNER: owner} if owner else {}
        )
        self.set(uid, pb.CONTAINER_RUNNING)

    def set(self, uid: str, state: pb.ContainerState) -> None:
        self.containers[uid] = pb.ContainerStatus(
            id=f"{uid}-c", metadata=pb.ContainerMetadata(name="c"), state=state, labels={UID: uid}
        )

    def tell(self, uid: str, *, of: str = "", kind: str = "CREATED") -> None:
        """Send an event, of a container or of the sandbox itself."""
        result = pb.ContainerEventResponse(
            container_id=of,
            container_event_type=f"CONTAINER_{kind}_EVENT",
            pod_sandbox_status=self.sandboxes[uid],
            containers_statuses=[self.containers[uid]],
        )
        self.events.put_nowait(result)

    async def call(self, method, request, *, timeout):  # noqa: ASYNC109 - the port's own name
        self.calls.append(method.name.rpartition("/")[2])
        await asyncio.sleep(0)
        if self.away:
            raise Unavailable("nobody is there")
        asked = getattr(request, "filter", None)
        uids = [
            sandbox for sandbox in self.sandboxes if asked is None or asked.label_selector.get(UID, sandbox) == sandbox
        ]
        match method:
            case methods.LIST_POD_SANDBOX:
                return pb.ListPodSandboxResponse(items=[self._listed(uid) for uid in uids])
            case methods.LIST_CONTAINERS:
                return pb.ListContainersResponse(containers=[self._container(uid) for uid in uids])
            case methods.POD_SANDBOX_STATUS:
                return self._status(request.pod_sandbox_id)
            case methods.CONTAINER_STATUS:
                return pb.ContainerStatusResponse(status=self.containers[request.container_id.removesuffix("-c")])
        raise AssertionError(method)

    def _listed(self, uid: str) -> pb.PodSandbox:
        status = self.sandboxes[uid]
        return pb.PodSandbox(
            id=uid, metadata=status.metadata, state=status.state, labels=status.labels, annotations=status.annotations
        )

    def _container(self, uid: str) -> pb.Container:
        return pb.Container(id=f"{uid}-c", pod_sandbox_id=uid, state=self.containers[uid].state, labels={UID: uid})

    def _status(self, uid: str) -> pb.PodSandboxStatusResponse:
        if uid not in self.sandboxes:
            raise NotFound("gone")
        if self.old:
            return pb.PodSandboxStatusResponse(status=self.sandboxes[uid])
        return pb.PodSandboxStatusResponse(
            status=self.sandboxes[uid], containers_statuses=[self.containers[uid]], timestamp=1
        )

    async def stream(self, method, request, *, timeout=None):  # noqa: ASYNC109 - the port's own name
        if self.old:
            raise Unimplemented("unknown method GetContainerEvents")
        while True:
            yield await self.events.get()


class Notifications:
    """The notifications of a cache, in order."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self.went: list[str] = []
        self.came = 0
        self.checks: list[tuple[str, str]] = []

    def checked(self, uid: str, sandbox: str) -> None:
        self.checks.append((uid, sandbox))

    def changed(self, uid: str) -> None:
        self._queue.put_nowait(uid)

    def here(self) -> None:
        self.came += 1

    async def next(self) -> str:
        async with asyncio.timeout(SECONDS):
            return await self._queue.get()

    @property
    def waiting(self) -> int:
        return self._queue.qsize()


@contextlib.asynccontextmanager
async def watching(runtime, **limits):
    result = Notifications()
    wakeups = SimpleNamespace(runtime_changed=result.changed, orphans_possible=lambda: None)
    connection = SimpleNamespace(connected=result.here, disconnected=result.went.append)
    checks = SimpleNamespace(check=result.checked, check_all=lambda _: None)
    view = RuntimeCache(runtime, ME, wakeups, connection, checks, RuntimeLimits(**limits))
    running = asyncio.create_task(view.run())
    try:
        async with asyncio.timeout(SECONDS):
            await view.complete.wait()
        yield view, result
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("old", [False, True], ids=["events", "no events"])
async def test_all_that_is_there_is_seen_at_first_with_its_containers(old):
    runtime = Runtime(old=old)
    runtime.add("a")
    async with watching(runtime) as (view, reported):
        assert await reported.next() == "a"
        assert view.observed("a").latest("c").running
        assert view.uids == {"a"}


@pytest.mark.parametrize("old", [False, True], ids=["events", "no events"])
@pytest.mark.parametrize("owner", ["", "/another/kubelet"], ids=["nobody's", "another's"])
async def test_sandboxes_of_another_owner_are_ignored(old, owner):
    runtime = Runtime(old=old)
    runtime.add("theirs", owner=owner)
    async with watching(runtime) as (view, reported):
        runtime.set("theirs", pb.CONTAINER_EXITED)
        runtime.tell("theirs")
        runtime.add("ours")
        runtime.tell("ours")
        assert await reported.next() == "ours"
        assert (view.uids, await view.refresh("theirs")) == (set(), view.observed("none"))


async def test_an_event_is_a_hint():
    runtime = Runtime(old=False)
    runtime.add("a")
    async with watching(runtime) as (view, reported):
        await reported.next()
        runtime.set("a", pb.CONTAINER_EXITED)
        runtime.tell("a")
        assert await reported.next() == "a"
        assert view.observed("a").latest("c").running, "only asking overwrites what was seen"
        assert (await view.refresh("a")).latest("c").exited


async def test_a_new_sandbox_has_its_own_network_status():
    runtime = Runtime(old=False)
    runtime.add("a")
    async with watching(runtime) as (_view, reported):
        await reported.next()
        runtime.tell("a", of="a-c")
        runtime.tell("a", of="a", kind="STARTED")
        runtime.add("b")
        runtime.tell("b", of="b")
        assert await reported.next() == "b"
        assert reported.checks == [], "neither a container, nor another event, nor a new sandbox"
        runtime.tell("a", of="a")
        await eventually_async(lambda: reported.checks)
        assert (reported.checks, reported.waiting) == ([("a", "a")], 0), "nothing of the pod changed"


async def test_a_silent_runtime_is_asked_again_soon_after_something_was_done_there():
    runtime = Runtime(old=True)
    async with watching(runtime, relist=3600.0) as (view, reported):
        runtime.add("a")
        seen = await view.refresh_sandbox("a", "a")
        assert seen.latest("c").running
        runtime.set("a", pb.CONTAINER_EXITED)
        assert await reported.next() == "a"
        runtime.calls.clear()
        await view.refresh("a")
        assert "ListContainers" in runtime.calls, "it was learnt that a sandbox's status does not tell of containers"


async def test_a_silent_runtime_is_asked_for_lists_only_while_nothing_changes():
    runtime = Runtime(old=True)
    for number in range(3):
        runtime.add(f"pod-{number}")
    async with watching(runtime, relist=0.01) as (view, reported):
        for _ in range(3):
            await reported.next()
        runtime.calls.clear()
        await eventually_async(lambda: len(runtime.calls) >= 10)
        assert set(runtime.calls) == {"ListPodSandbox", "ListContainers"}
        runtime.set("pod-1", pb.CONTAINER_EXITED)
        assert await reported.next() == "pod-1"
        await view.refresh("pod-1")
        del runtime.sandboxes["pod-2"]
        while await reported.next() != "pod-2":
            pass


async def test_a_lost_runtime_is_reported_once_and_listed_again_when_it_returns(caplog):
    runtime = Runtime(old=True)
    runtime.add("a")
    async with watching(runtime, relist=0.01) as (view, reported):
        await reported.next()
        for old in (True, False):
            runtime.away, runtime.old = True, old
            await eventually_async(lambda: reported.went)
            before = reported.came
            runtime.away = False
            await eventually_async(lambda before=before: reported.came > before)
            reported.went.clear()
        runtime.set("a", pb.CONTAINER_EXITED)
        runtime.calls.clear()
        runtime.tell("a")
        assert await reported.next() == "a"
        assert (await view.refresh_sandbox("a", "a")).latest("c").exited
        assert [record.message for record in caplog.records].count(
            "runtime sends no container events, listing it every second instead"
        ) == 1


class Busy(Runtime):
    """Something happens while a sandbox's status is on its way."""

    def __init__(self, *, answers_first: bool) -> None:
        super().__init__(old=False)
        self._answers_first = answers_first

    async def call(self, method, request, *, timeout):  # noqa: ASYNC109 - the port's own name
        if method is not methods.POD_SANDBOX_STATUS:
            return await super().call(method, request, timeout=timeout)
        before = await super().call(method, request, timeout=timeout)
        self.tell("a")
        self.set("a", pb.CONTAINER_EXITED)
        self.tell("a")
        await eventually_async(self.events.empty)
        return before if self._answers_first else await super().call(method, request, timeout=timeout)


@pytest.mark.parametrize(
    ("answers_first", "looks"),
    [pytest.param(False, 0, id="in the answer"), pytest.param(True, 1, id="after the answer")],
)
async def test_events_that_come_while_a_pod_is_looked_at_count_if_the_answer_does_not_have_them(answers_first, looks):
    runtime = Busy(answers_first=answers_first)
    async with watching(runtime) as (view, reported):
        await eventually_async(lambda: reported.came == 2)
        runtime.add("a")
        seen = await view.refresh_sandbox("a", "a")
        assert seen.latest("c").running == answers_first
        assert reported.waiting == looks
        runtime.set("a", pb.CONTAINER_UNKNOWN)
        runtime.tell("a")
        assert await reported.next() == "a", "nothing is held any longer"
