"""All probes of a node, in time that the test moves."""

import asyncio

import pytest

from podwire.kubelet.pods.observed import ObservedContainer
from podwire.kubelet.probes import ProbeFailed, ProbeUnknown
from podwire.objects import pods
from podwire.protocols.cri import cri_pb2 as pb


def app(pod: pods.Pod):
    return pod.spec.containers[0]


async def test_a_container_without_probes_is_ready_when_it_runs(bench, pod):
    web, seen = pod(), bench.seen()
    bench.follow(web, seen)
    await bench.time.pass_(100)
    assert bench.probes.ready(app(web), seen)
    assert bench.probes.started(app(web), seen)
    assert bench.probes.unhealthy(seen) is None
    assert not bench.probes.ready(app(web), bench.seen(state=pb.CONTAINER_EXITED))
    assert (bench.answers.asked, bench.time.sleepers) == ([], 0)


async def test_a_container_is_asked_at_once_and_then_once_a_period(bench, pod):
    bench.follow(pod(readiness={"periodSeconds": 5}), bench.seen())
    await bench.time.pass_(16)
    assert bench.answers.times("readiness") == [0, 5, 10, 15]


async def test_readiness_is_reported_once_after_the_first_success(bench, pod):
    web, seen = pod(readiness={}), bench.seen()
    bench.follow(web, seen)
    assert not bench.probes.ready(app(web), seen)
    await bench.time.pass_(0)
    assert bench.probes.ready(app(web), seen)
    await bench.time.pass_(60)
    assert bench.changed == ["u1"]
    assert bench.reported == []


async def test_the_first_question_waits_for_the_initial_delay(bench, pod):
    bench.follow(pod(liveness={"initialDelaySeconds": 7, "periodSeconds": 2}), bench.seen())
    await bench.time.pass_(10)
    assert bench.answers.times("liveness") == [7, 9]


async def test_the_initial_delay_counts_from_the_start_of_the_container(bench, pod):
    seen = bench.seen()
    await bench.time.pass_(5)
    bench.follow(pod(liveness={"initialDelaySeconds": 7}), seen)
    await bench.time.pass_(10)
    assert bench.answers.times("liveness") == [7]


@pytest.mark.parametrize("jump", [86_400.0, -86_400.0], ids=["a day on", "a day back"])
async def test_a_clock_jump_does_not_change_the_period(bench, pod, jump):
    bench.follow(pod(liveness={"initialDelaySeconds": 3, "periodSeconds": 2}), bench.seen())
    await bench.time.pass_(1)
    bench.time.wall_jump = jump
    await bench.time.pass_(7)
    assert bench.answers.times("liveness") == [3, 5, 7]


async def test_a_start_holds_back_the_other_probes_and_lets_them_go_at_once(bench, pod):
    web, seen = pod(startup={"periodSeconds": 3, "failureThreshold": 30}, readiness={}, liveness={}), bench.seen()
    bench.answers.codes["startup"] = 1
    bench.follow(web, seen)
    await bench.time.pass_(8)
    assert {word for _, _, word in bench.answers.asked} == {"startup"}
    assert not bench.probes.started(app(web), seen)
    assert not bench.probes.ready(app(web), seen)
    bench.answers.codes["startup"] = 0
    await bench.time.pass_(2)
    assert bench.probes.started(app(web), seen)
    assert bench.probes.ready(app(web), seen)
    assert bench.answers.times("readiness") == bench.answers.times("liveness") == [9]
    await bench.time.pass_(30)
    assert bench.answers.times("startup") == [0, 3, 6, 9]
    assert bench.changed == ["u1", "u1"]  # started, then ready


async def test_without_a_readiness_probe_a_container_is_ready_once_it_has_started(bench, pod):
    web, seen = pod(startup={"initialDelaySeconds": 1}), bench.seen()
    bench.follow(web, seen)
    assert not bench.probes.ready(app(web), seen)
    await bench.time.pass_(1)
    assert bench.probes.ready(app(web), seen)


async def test_failures_in_a_row_give_a_verdict_and_an_end_to_the_questions(bench, pod):
    web = pod(liveness={"periodSeconds": 1, "failureThreshold": 3, "terminationGracePeriodSeconds": 4})
    seen = bench.seen()
    bench.answers.codes["liveness"] = 1
    bench.follow(web, seen)
    await bench.time.pass_(1)
    assert bench.probes.unhealthy(seen) is None
    await bench.time.pass_(10)
    found = bench.probes.unhealthy(seen)
    assert found is not None
    assert found.grace_seconds == 4
    assert found.message == "Container app failed liveness probe"
    assert bench.answers.times("liveness") == [0, 1, 2]
    assert bench.changed == ["u1"]
    assert bench.reported == [("app", "Unhealthy", "Liveness probe failed: said liveness")] * 3


async def test_a_start_that_fails_is_a_verdict_too(bench, pod):
    seen = bench.seen()
    bench.answers.codes["startup"] = ProbeFailed('command timed out: "startup" timed out after 1s')
    bench.follow(pod(startup={"failureThreshold": 1}), seen)
    await bench.time.pass_(0)
    found = bench.probes.unhealthy(seen)
    assert found is not None
    assert found.message == "Container app failed startup probe"
    message = 'Startup probe failed: command timed out: "startup" timed out after 1s'
    assert bench.reported == [("app", "Unhealthy", message)]


async def test_a_restarted_container_starts_with_no_results(bench, pod):
    web, first = pod(liveness={"failureThreshold": 2, "periodSeconds": 1}, readiness={}), bench.seen("c1")
    bench.follow(web, first)
    await bench.time.pass_(1)
    bench.answers.codes["liveness"] = 1
    await bench.time.pass_(5)
    assert bench.probes.unhealthy(first) is not None
    second = bench.seen("c2")
    bench.follow(web, second)
    assert bench.probes.unhealthy(second) is None
    assert bench.probes.unhealthy(first) is None  # it is gone
    assert not bench.probes.ready(app(web), second)
    await bench.time.pass_(0)
    assert bench.probes.ready(app(web), second)
    assert bench.probes.unhealthy(second) is None  # one failure of two
    await bench.time.pass_(1)
    assert bench.probes.unhealthy(second) is not None


@pytest.mark.parametrize("how", ["it is gone", "it has exited", "its pod is forgotten"])
async def test_a_removed_container_is_not_probed(bench, pod, how):
    web, seen = pod(readiness={"periodSeconds": 1}), bench.seen()
    bench.follow(web, seen)
    await bench.time.pass_(0)
    match how:
        case "it is gone":
            bench.follow(web)
        case "it has exited":
            bench.follow(web, bench.seen(state=pb.CONTAINER_EXITED))
        case _:
            bench.probes.forget("u1")
    await bench.time.pass_(10)
    assert bench.answers.times("readiness") == [0]
    assert bench.time.sleepers == 0
    bench.probes.forget("u1")  # and once more is fine


async def test_following_a_pod_twice_starts_no_second_worker(bench, pod):
    web, seen = pod(readiness={"periodSeconds": 2}), bench.seen()
    for _ in range(10):
        bench.follow(web, seen)
        await bench.time.pass_(0.5)
    assert bench.answers.times("readiness") == [0, 2, 4]


async def test_a_question_that_hangs_is_not_joined_by_others(bench, pod):
    bench.answers.held["liveness"] = hold = asyncio.Event()
    bench.follow(pod(liveness={"periodSeconds": 1}), bench.seen())
    await bench.time.pass_(60)
    assert len(bench.answers.asked) == 1
    hold.set()
    await bench.time.pass_(2)
    assert bench.answers.times("liveness") == [0, 60, 61, 62]


async def test_a_probe_that_could_not_run_has_no_result(bench, pod):
    web, seen = pod(readiness={"periodSeconds": 1, "failureThreshold": 1}), bench.seen()
    bench.follow(web, seen)
    await bench.time.pass_(0)
    bench.answers.codes["readiness"] = ProbeUnknown("rpc error: code = Unavailable desc = nobody there")
    await bench.time.pass_(5)
    assert bench.probes.ready(app(web), seen)
    text = "Readiness probe errored and resulted in unknown state: rpc error: code = Unavailable desc = nobody there"
    assert bench.reported[0] == ("app", "Unhealthy", text)


async def test_a_fault_in_one_probe_ends_no_other(bench, pod, caplog):
    web, seen = pod(readiness={"periodSeconds": 1}, liveness={"periodSeconds": 1}), bench.seen()
    bench.answers.codes["liveness"] = ZeroDivisionError("a bug")
    bench.follow(web, seen)
    await bench.time.pass_(1)
    assert bench.answers.times("readiness") == bench.answers.times("liveness") == [0, 1]
    assert "cannot run probe: unexpected error" in caplog.text


async def test_a_terminating_pod_has_readiness_but_no_liveness_probes(bench, pod):
    probes = {"liveness": {"periodSeconds": 1}, "readiness": {"periodSeconds": 1, "failureThreshold": 1}}
    web, seen = pod(**probes), bench.seen()
    bench.follow(web, seen)
    await bench.time.pass_(0)
    bench.answers.codes |= {"liveness": 1, "readiness": 1}
    bench.follow(pod(deleting=True, **probes), seen)
    await bench.time.pass_(10)
    assert bench.answers.times("liveness") == [0]
    assert bench.probes.unhealthy(seen) is None
    assert not bench.probes.ready(app(web), seen)


async def test_a_verdict_falls_with_the_deletion_of_the_pod(bench, pod):
    probes = {"liveness": {"failureThreshold": 1}}
    bench.answers.codes["liveness"] = 1
    seen = bench.seen()
    bench.follow(pod(**probes), seen)
    await bench.time.pass_(0)
    assert bench.probes.unhealthy(seen) is not None
    bench.follow(pod(deleting=True, **probes), seen)
    assert bench.probes.unhealthy(seen) is None


def reported(id_: str, **facts: bool):
    return {"containerStatuses": [{"name": "app", "containerID": f"podwire://{id_}", **facts}]}


async def test_a_kubelet_that_restarts_makes_nothing_unready_and_spreads_its_questions(bench, pod):
    probes = {"startup": {}, "readiness": {"periodSeconds": 10, "failureThreshold": 1}}
    web = pod(reported("c1", ready=True, started=True), **probes)
    old = ObservedContainer(id="c1", name="app", sandbox="s", state=pb.CONTAINER_RUNNING, started_at=1)
    bench.chance = 0.4
    bench.follow(web, old)
    assert bench.probes.started(app(web), old)
    assert bench.probes.ready(app(web), old)
    bench.answers.codes["readiness"] = 1
    await bench.time.pass_(15)
    assert bench.answers.asked == [(4, "c1", "readiness"), (14, "c1", "readiness")]
    assert not bench.probes.ready(app(web), old)


async def test_the_stored_status_of_another_container_is_ignored(bench, pod):
    web, seen = pod(reported("c0", ready=True, started=True), readiness={}), bench.seen("c1")
    bench.follow(web, seen)
    assert not bench.probes.ready(app(web), seen)


async def test_pods_followed_before_the_start_are_probed(bench_idle, pod):
    web, seen = pod(readiness={}), bench_idle.seen()
    bench_idle.follow(web, seen)
    assert not bench_idle.probes.ready(app(web), seen)
    running = asyncio.create_task(bench_idle.probes.run())
    await bench_idle.time.pass_(0)
    assert bench_idle.probes.ready(app(web), seen)
    running.cancel()
    await asyncio.wait([running])
    assert bench_idle.time.sleepers == 0
    bench_idle.follow(web, bench_idle.seen("c2"))  # after the end nothing is started any more
    await bench_idle.time.pass_(5)
    assert len(bench_idle.answers.asked) == 1


async def test_sidecars_are_asked_too_at_the_address_that_the_pod_has_by_then(bench):
    sidecar = {
        "name": "proxy",
        "restartPolicy": "Always",
        "startupProbe": {"httpGet": {"port": 80}, "periodSeconds": 1},
    }
    web = pods.read({"metadata": {"uid": "u1"}, "spec": {"initContainers": [sidecar], "containers": [{"name": "app"}]}})
    seen = bench.seen(name="proxy")
    bench.probes.follow(web, {"proxy": seen}, ())
    await bench.time.pass_(0)
    assert bench.reported == [
        ("proxy", "Unhealthy", "Startup probe errored and resulted in unknown state: the pod has no address yet")
    ]
    bench.probes.follow(web, {"proxy": seen}, ("10.1.2.4",))
    await bench.time.pass_(1)
    assert bench.answers.urls == ["http://10.1.2.4:80/"]
    assert bench.probes.started(web.spec.init_containers[0], seen)
