"""Failures between a scheduler and its server."""

import asyncio

import pytest

from podwire.protocols.k8sapi.client_side import Interrupted, Reply, Unreachable
from podwire.protocols.k8sapi.status import ApiError
from podwire.scheduler.kinds import NODES, PODS


@pytest.fixture(autouse=True)
def _short_backoff(cluster):
    cluster.limits = {"initial_backoff": 0.01, "max_backoff": 0.05}


def binds(method, path):
    return method == "POST" and path.endswith("/binding")


async def test_two_schedulers_bind_each_pod_once(cluster):
    for name in ("n1", "n2"):
        await cluster.node(name)
    async with cluster.scheduler(), cluster.scheduler():
        await asyncio.gather(*(cluster.pod(f"p{index}") for index in range(40)))
        await cluster.all_placed(40)
        for index in range(40):
            assert len(await cluster.events("Scheduled", f"p{index}")) == 1


async def test_a_scheduler_that_dies_before_a_binding_is_followed_by_another_that_binds(cluster):
    wire, reached = cluster.wire(), asyncio.Event()

    async def disturb(method, path, send):
        if binds(method, path):
            reached.set()
            await asyncio.Event().wait()
        return await send()

    wire.disturb = disturb
    await cluster.node("n1", cpu="1")
    await cluster.pod("web", requests={"cpu": "1"})
    async with cluster.scheduler(wire), asyncio.timeout(40):
        await reached.wait()
    assert "nodeName" not in (await cluster.seen("web"))["spec"]
    async with cluster.scheduler():
        await cluster.placed("web")


@pytest.mark.parametrize("happened", [True, False], ids=["and it was bound", "and it was not"])
async def test_an_answer_is_lost(cluster, happened):
    wire, lost = cluster.wire(), []

    async def disturb(method, path, send):
        if binds(method, path) and not lost:
            lost.append(await send() if happened else None)
            raise Interrupted("reset by peer")
        return await send()

    wire.disturb = disturb
    await cluster.node("n1", cpu="1")
    async with cluster.scheduler(wire):
        await cluster.pod("web", requests={"cpu": "1"})
        await cluster.placed("web")
        await cluster.pod("next", requests={"cpu": "1"})
        await cluster.refused("next", "Insufficient cpu")
    bindings = [path for method, path in wire.calls if binds(method, path)]
    assert len(bindings) == (1 if happened else 2)


async def test_while_an_answer_is_missing_the_place_is_kept(cluster):
    """Nobody knows whether the pod is bound, and asking fails too: until it is known, nobody else gets its place."""
    wire, lost, answering = cluster.wire(), asyncio.Event(), asyncio.Event()

    async def disturb(method, path, send):
        if binds(method, path) and not lost.is_set():
            lost.set()
            raise Interrupted("reset by peer")
        if path.endswith("/pods/web") and not answering.is_set():
            raise Interrupted("reset by peer")
        return await send()

    wire.disturb = disturb
    await cluster.node("n1", cpu="1")
    async with cluster.scheduler(wire):
        await cluster.pod("web", requests={"cpu": "1"})
        async with asyncio.timeout(40):
            await lost.wait()
        await cluster.pod("next", requests={"cpu": "1"})
        await cluster.refused("next", "Insufficient cpu")
        answering.set()
        await cluster.all_placed_or_refused()
    assert len((await cluster.on_nodes())["n1"]) == 1


async def test_a_pod_bound_by_another_scheduler_is_counted_on_its_node(cluster):
    wire, stolen = cluster.wire(), []

    async def disturb(method, path, send):
        if binds(method, path) and not stolen:
            stolen.append(await cluster.api.bind("web", "default", "n2"))
        return await send()

    wire.disturb = disturb
    await cluster.node("n1", cpu="1")
    async with cluster.scheduler(wire):
        await cluster.pod("web", requests={"cpu": "1"})
        assert (await cluster.placed("web"))["spec"]["nodeName"] == "n2"
        await cluster.pod("next", requests={"cpu": "1"})
        assert (await cluster.placed("next"))["spec"]["nodeName"] == "n1"
    assert stolen


async def test_a_pod_bound_by_another_scheduler_is_counted_before_its_watch_event(cluster):
    wire, stolen = cluster.wire(), []
    wire.late["spec.nodeName!="] = asyncio.Event()

    async def disturb(method, path, send):
        if binds(method, path) and not stolen:
            stolen.append(await cluster.api.bind("web", "default", "n1"))
        return await send()

    wire.disturb = disturb
    await cluster.node("n1", cpu="1")
    async with cluster.scheduler(wire):
        await cluster.pod("web", requests={"cpu": "1"})
        await cluster.placed("web")
        await cluster.pod("next", requests={"cpu": "1"})
        await cluster.refused("next", "Insufficient cpu")
        wire.late["spec.nodeName!="].set()
        await cluster.api.delete(PODS, "web", "default", grace_seconds=0)
        await cluster.placed("next")


async def test_a_pod_bound_by_another_scheduler_meanwhile_is_not_written(cluster):
    wire, written = cluster.wire(), asyncio.Event()

    async def disturb(method, path, send):
        if not path.endswith("/status"):
            return await send()
        await cluster.api.bind("web", "default", "elsewhere")
        reply = await send()
        written.set()
        return reply

    wire.disturb = disturb
    await cluster.pod("web")
    async with cluster.scheduler(wire), asyncio.timeout(40):
        await written.wait()
    [condition] = (await cluster.seen("web"))["status"]["conditions"]
    assert condition["status"] == "True"


async def test_a_pod_that_is_deleted_before_it_is_bound_leaves_its_place(cluster):
    wire, gone = cluster.wire(), asyncio.Event()

    async def disturb(method, path, send):
        if binds(method, path) and not gone.is_set():
            await cluster.api.delete(PODS, "web", "default", grace_seconds=0)
            gone.set()
        return await send()

    wire.disturb = disturb
    await cluster.node("n1", cpu="1")
    async with cluster.scheduler(wire):
        await cluster.pod("web", requests={"cpu": "1"})
        async with asyncio.timeout(40):
            await gone.wait()
        await cluster.pod("next", requests={"cpu": "1"})
        await cluster.placed("next")


async def test_nothing_is_bound_to_a_node_that_went_meanwhile(cluster):
    wire, held, going_on = cluster.wire(), asyncio.Event(), asyncio.Event()

    async def disturb(method, path, send):
        if binds(method, path):
            held.set()
            await going_on.wait()
        return await send()

    wire.disturb = disturb
    await cluster.node("n1", pods="1")
    await cluster.node("n2", pods="1", cpu="1")
    async with cluster.scheduler(wire, concurrent_bindings=1):
        await cluster.pod("first")
        async with asyncio.timeout(40):
            await held.wait()
        await cluster.pod("second")  # chosen for n2, but its binding has to wait for the first
        await cluster.pod("third")
        await cluster.refused("third", "2 Too many pods")
        await cluster.api.delete(NODES, "n2")
        await cluster.refused("third", "1 Too many pods")
        going_on.set()
        await cluster.placed("first")
        await cluster.refused("second", "1 Too many pods")
    assert [path for method, path in wire.calls if binds(method, path)] == [
        "/api/v1/namespaces/default/pods/first/binding"
    ]


async def test_a_refused_binding_is_reported_and_retried(cluster):
    wire, refused = cluster.wire(), []

    async def disturb(method, path, send):
        if binds(method, path) and len(refused) < 2:
            refused.append(path)
            return Reply(500, {}, b'{"kind":"Status","status":"Failure","message":"store is full","code":500}')
        return await send()

    wire.disturb = disturb
    await cluster.node("n1")
    async with cluster.scheduler(wire):
        await cluster.pod("web")
        await cluster.placed("web")
        [event] = await cluster.events("FailedScheduling")
        assert "store is full" in event["note"]


async def test_an_answer_that_is_none_ends_neither_the_binding_nor_the_scheduler(cluster):
    wire, garbled, reported = cluster.wire(), set(), asyncio.Event()

    async def disturb(method, path, send):
        if path not in garbled:
            garbled.add(path)
            if path.endswith("/status"):
                reported.set()
            return Reply(200, {}, b"<html>")
        return await send()

    wire.disturb = disturb
    async with cluster.scheduler(wire) as task:
        await cluster.pod("web")
        async with asyncio.timeout(40):
            await reported.wait()
        await cluster.node("n1")
        await cluster.placed("web")
        await cluster.pod("next")
        await cluster.placed("next")
        assert not task.done()


async def test_a_server_that_was_away_finds_the_scheduler_waiting(cluster):
    wire = cluster.wire()
    await cluster.node("n1", cpu="2")
    async with cluster.scheduler(wire):
        await cluster.pod("before", requests={"cpu": "1"})
        await cluster.placed("before")
        wire.cut()
        await cluster.pod("meanwhile", requests={"cpu": "1"})
        await cluster.pod("too-much", requests={"cpu": "1"})
        await cluster.api.delete(PODS, "before", "default", grace_seconds=0)
        await asyncio.sleep(0.05)
        wire.mend()
        await cluster.all_placed(2)
    assert len((await cluster.on_nodes())["n1"]) == 2


async def test_a_server_that_goes_before_a_binding_gets_it_later(cluster):
    wire = cluster.wire()

    async def disturb(method, path, send):
        if binds(method, path) and not cut.is_set():
            cut.set()
            wire.cut()
            raise Unreachable("connection refused")
        return await send()

    cut, wire.disturb = asyncio.Event(), disturb
    await cluster.node("n1")
    async with cluster.scheduler(wire):
        await cluster.pod("web")
        async with asyncio.timeout(40):
            await cut.wait()
        wire.mend()
        await cluster.placed("web")


async def test_rejected_events_do_not_delay_pods(cluster):
    wire = cluster.wire()

    async def disturb(method, path, send):
        if "/events" in path:
            await asyncio.Event().wait()
        return await send()

    wire.disturb = disturb
    await cluster.node("n1")
    async with cluster.scheduler(wire):
        for name in ("one", "two"):
            await cluster.pod(name)
            await cluster.placed(name)


async def test_a_refusal_that_was_not_written_is_written_later(cluster):
    wire, lost = cluster.wire(), []

    async def disturb(method, path, send):
        if path.endswith("/status") and not lost:
            lost.append(path)
            raise Interrupted("reset by peer")
        return await send()

    wire.disturb = disturb
    async with cluster.scheduler(wire):
        await cluster.pod("web")
        await cluster.refused("web", "no nodes available to schedule pods")
    assert lost


async def test_a_place_that_no_watch_ever_confirms_is_given_back(cluster):
    """As when a pod is bound and gone again while a watch is away, and a listing later tells of neither."""
    wire, gone = cluster.wire(), asyncio.Event()

    async def disturb(method, path, send):
        if binds(method, path) and not gone.is_set():
            await cluster.api.delete(PODS, "web", "default", grace_seconds=0)
            gone.set()
            return Reply(201, {}, b'{"kind":"Status","status":"Success"}')
        return await send()

    wire.disturb = disturb
    await cluster.node("n1", cpu="1")
    async with cluster.scheduler(wire, flush=0.05):
        await cluster.pod("web", requests={"cpu": "1"})
        async with asyncio.timeout(40):
            await gone.wait()
        await cluster.pod("next", requests={"cpu": "1"})
        await cluster.placed("next")


async def test_a_server_that_does_not_serve_pods_ends_the_scheduler(cluster):
    wire = cluster.wire()

    async def disturb(_method, _path, _send):
        return Reply(404, {}, b"no such page")

    wire.disturb = disturb
    with pytest.raises(ExceptionGroup) as caught:
        async with cluster.scheduler(wire) as task, asyncio.timeout(40):
            await task
    assert caught.group_contains(ApiError)
