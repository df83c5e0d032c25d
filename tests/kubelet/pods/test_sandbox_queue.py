"""Retries when a sandbox is freed; the first pod in the queue is retried, in a whole kubelet."""

from dataclasses import replace

from podwire.kubelet.pods.sandbox_queue import ATTEMPTS, SandboxQueue
from podwire.protocols.grpc_status import Internal


def queue_of(*uids):
    woken = []
    queue = SandboxQueue(woken.append)
    for uid in uids:
        attempt(queue, uid)
    return queue, woken


def attempt(queue, uid):
    queue.begin(uid)
    return queue.failed(uid)


def test_one_freed_sandbox_wakes_the_pod_that_has_waited_longest():
    queue, woken = queue_of("a", "b", "c")
    queue.freed()
    assert woken == ["a"]


def test_a_success_is_a_chance_for_the_next_one_too():
    queue, woken = queue_of("a", "b", "c")
    queue.freed()
    queue.begin("a")
    queue.succeeded("a")
    assert woken == ["a", "b"]


def test_after_some_failures_nobody_else_is_woken():
    queue, woken = queue_of("a", "b", "c", "d")
    queue.freed()
    for uid in ("a", "b", "c"):
        attempt(queue, uid)
    assert woken == ["a", "b"]
    assert len(woken) == ATTEMPTS


def test_a_pod_that_failed_goes_to_the_end():
    queue, woken = queue_of("a", "b", "c")
    queue.freed()
    attempt(queue, "a")
    attempt(queue, "b")
    queue.freed()
    assert woken == ["a", "b", "c"]


def test_several_freed_sandboxes_wake_several_pods():
    queue, woken = queue_of("a", "b", "c")
    queue.freed()
    queue.freed()
    assert woken == ["a", "b"]


def test_a_pod_that_is_gone_or_waits_for_something_else_passes_its_chance_on():
    queue, woken = queue_of("a", "b", "c")
    queue.freed()
    queue.succeeded("a")  # it was deleted
    queue.unused("b")
    assert woken == ["a", "b", "c"]
    queue.unused("c")
    queue.unused("c")
    assert woken == ["a", "b", "c"]


def test_a_sandbox_that_is_freed_during_an_attempt_allows_another():
    queue, woken = queue_of()
    queue.begin("a")
    queue.freed()
    assert queue.failed("a")
    assert not attempt(queue, "a")
    assert woken == []


async def test_a_pod_in_back_off_starts_when_another_one_has_ended(world):
    """As if there was one address for two pods. The back-off alone would take an hour."""
    await world.stop()
    world.pod_limits = replace(world.pod_limits, sandbox_backoff=(3600.0, 3600.0))
    world.start()
    await world.make("first")
    await world.running("first")
    world.runtime.fails["RunPodSandbox"] = [Internal("no free address")]
    await world.make("second")
    await world.event("FailedCreatePodSandBox")
    await world.delete("first")
    await world.running("second")


async def test_a_pod_in_back_off_starts_when_another_one_has_succeeded(world):
    await world.stop()
    world.pod_limits = replace(world.pod_limits, sandbox_backoff=(3600.0, 3600.0))
    world.start()
    await world.make("first", restartPolicy="Never")
    await world.running("first")
    world.runtime.fails["RunPodSandbox"] = [Internal("no free address")]
    await world.make("second")
    await world.event("FailedCreatePodSandBox")
    world.runtime.ends("c")
    await world.running("second")
