"""Order of the queue."""

import asyncio

import pytest

from podwire.scheduler import Limits
from podwire.scheduler.framework import ClusterEvent
from podwire.scheduler.queue import PodQueue


@pytest.fixture
def queue():
    made = PodQueue(Limits(initial_backoff=0.001))
    yield made
    made.close()


async def names(queue, count):
    async with asyncio.timeout(20):
        return [(await queue.pop()).pod.name for _ in range(count)]


async def nobody(queue):
    """Nobody is ready: a waiting task is woken after a pod that comes last."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await queue.pop()


async def test_pods_are_ordered_by_priority_then_by_waiting_time(queue, make_pod):
    for name, priority in (("a", 0), ("b", 10), ("c", 0), ("d", 10), ("e", -5)):
        queue.add(make_pod(name, priority=priority))
    assert await names(queue, 5) == ["b", "d", "a", "c", "e"]


async def test_a_consumer_waits_for_the_first_pod(queue, make_pod):
    taking = asyncio.create_task(names(queue, 1))
    await asyncio.sleep(0)
    queue.add(make_pod("a"))
    assert await taking == ["a"]


async def test_a_pod_is_queued_once_however_often_it_is_added(queue, make_pod):
    queue.add(make_pod("a"))
    queue.add(make_pod("a"))
    queue.update(make_pod("a"), may_schedule=True)
    assert await names(queue, 1) == ["a"]
    await nobody(queue)


async def test_a_pod_that_is_gone_is_not_given_out(queue, make_pod):
    queue.add(make_pod("a"))
    queue.drop("uid-default-a")
    await nobody(queue)
    assert len(queue) == 0


async def test_an_unschedulable_pod_is_woken_only_by_events_that_may_help(queue, make_pod):
    queue.add(make_pod("a"))
    await names(queue, 1)
    queue.mark_unschedulable("uid-default-a", ClusterEvent.NODE)
    queue.activate(ClusterEvent.POD_GONE)
    await nobody(queue)
    queue.activate(ClusterEvent.NODE | ClusterEvent.POD_CAME)
    assert await names(queue, 1) == ["a"]


async def test_a_flush_wakes_everybody(queue, make_pod):
    queue.add(make_pod("a"))
    await names(queue, 1)
    queue.mark_unschedulable("uid-default-a", ClusterEvent(0))
    queue.activate_all()
    assert await names(queue, 1) == ["a"]


async def test_a_change_of_the_pod_itself_wakes_it_if_it_may_help(queue, make_pod):
    queue.add(make_pod("a"))
    await names(queue, 1)
    queue.mark_unschedulable("uid-default-a", ClusterEvent.NODE)
    queue.update(make_pod("a"), may_schedule=False)
    await nobody(queue)
    queue.update(make_pod("a", labels={"new": ""}), may_schedule=True)
    async with asyncio.timeout(20):
        assert (await queue.pop()).pod.metadata.labels == {"new": ""}


async def test_a_pod_is_retried_after_an_error(queue, make_pod):
    queue.add(make_pod("a"))
    for _ in range(3):
        await names(queue, 1)
        queue.back_off("uid-default-a")
    assert await names(queue, 1) == ["a"]


async def test_a_pod_changed_while_in_flight_is_queued_with_its_new_state(queue, make_pod):
    queue.add(make_pod("a"))
    await names(queue, 1)
    queue.refresh(make_pod("a", labels={"new": ""}))
    queue.refresh(make_pod("stranger"))
    queue.back_off("uid-default-a")
    async with asyncio.timeout(20):
        assert (await queue.pop()).pod.metadata.labels == {"new": ""}
    assert len(queue) == 1


async def test_pauses_double_up_to_the_longest(monkeypatch, make_pod):
    queue, pauses = PodQueue(), []
    loop = asyncio.get_running_loop()

    def call_later(seconds, call, *given):
        pauses.append(seconds)
        return loop.call_soon(call, *given)

    queue.add(make_pod("a"))
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "get_running_loop", lambda: type("Loop", (), {"call_later": call_later}))
        for _ in range(6):
            await queue.pop()
            queue.back_off("uid-default-a")
    assert pauses == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


async def test_a_pod_dropped_during_its_backoff_is_not_queued_again(queue, make_pod):
    queue.add(make_pod("a"))
    await names(queue, 1)
    queue.back_off("uid-default-a")
    queue.drop("uid-default-a")
    await asyncio.sleep(0.01)
    await nobody(queue)


async def test_results_of_a_removed_pod_are_ignored(queue):
    queue.mark_unschedulable("nobody", ClusterEvent.NODE)
    queue.back_off("nobody")
    queue.activate_all()
    assert not queue.is_unschedulable("nobody")


async def test_an_event_activates_the_first_pods_at_once_and_the_others_after_their_back_off(make_pod):
    queue = PodQueue(Limits(initial_backoff=0.3, eager_retries=2))
    for number in range(4):
        queue.add(make_pod(f"p{number}", priority=number))
    for info in [await queue.pop() for _ in range(4)]:
        queue.mark_unschedulable(info.pod.uid, ClusterEvent.NODE)
    queue.activate(ClusterEvent.NODE)
    assert await names(queue, 2) == ["p3", "p2"]
    assert queue.counts()["backoff"] == 2
    await nobody(queue)
    assert sorted(await names(queue, 2)) == ["p0", "p1"]
    queue.close()


async def test_a_pod_that_has_waited_is_activated_at_once(make_pod):
    queue = PodQueue(Limits(initial_backoff=0.001, eager_retries=0))
    queue.add(make_pod("a"))
    queue.mark_unschedulable((await queue.pop()).pod.uid, ClusterEvent.NODE)
    await asyncio.sleep(0.005)
    queue.activate(ClusterEvent.NODE)
    assert queue.counts()["active"] == 1
    queue.close()
