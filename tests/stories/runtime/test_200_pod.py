"""A pod's life, as a kubelet sees it."""

import asyncio
import re
import time
from pathlib import Path

from podwire.protocols.cri import cri_pb2 as pb

LINE = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(Z|[+-]\d\d:\d\d) (stdout|stderr) (P|F) (.*)$")


def log_lines(config, path):
    """Stream, tag and text of every line of a container's log."""
    found = []
    for line in (Path(config.log_directory) / path).read_text().splitlines():
        match = LINE.match(line)
        assert match, line
        found.append(match.groups()[1:])
    return found


async def test_a_pod_is_run_watched_stopped_and_removed(cri, shared):
    pod = await cri.run()
    answer = await cri("PodSandboxStatus", pod_sandbox_id=pod.id)
    status = answer.status
    assert (status.id, status.metadata) == (pod.id, pod.config.metadata)
    assert status.state == pb.SANDBOX_READY
    assert abs(status.created_at / 1e9 - time.time()) < 60
    assert status.network.ip.startswith("10.77.")
    assert answer.timestamp > 0
    id_ = await cri.create(pod, cri.container_config())
    created = await cri.status(id_)
    assert created.state == pb.CONTAINER_CREATED
    assert (created.started_at, created.finished_at) == (0, 0)
    await cri("StartContainer", container_id=id_)
    running = await cri.status(id_)
    assert running.state == pb.CONTAINER_RUNNING
    assert running.metadata.name == "main"
    assert running.image.image
    assert running.image_ref
    assert running.image_id
    assert running.created_at <= running.started_at
    assert running.finished_at == 0
    assert running.log_path == f"{pod.config.log_directory}/main/0.log"
    await cri("StopContainer", container_id=id_, timeout=5)
    ended = await cri.status(id_)
    assert (ended.state, ended.exit_code, ended.reason) == (pb.CONTAINER_EXITED, 0, "Completed")
    assert ended.finished_at >= ended.started_at
    await cri("StopPodSandbox", pod_sandbox_id=pod.id)
    status = (await cri("PodSandboxStatus", pod_sandbox_id=pod.id)).status
    assert (status.state, status.network.ip) == (pb.SANDBOX_NOTREADY, "")
    await cri("RemovePodSandbox", pod_sandbox_id=pod.id)
    assert (await cri.refused("PodSandboxStatus", pod_sandbox_id=pod.id)).code == 5
    assert (await cri.refused("ContainerStatus", container_id=id_)).code == 5
    assert [leak for leak in shared.leaks() if pod.id in leak or id_ in leak or pod.ip == leak] == []


async def test_a_log_has_every_line_with_its_time_and_stream(cri):
    pod = await cri.run()
    id_ = await cri.start(pod, "echo one; sleep 0.1; echo two >&2; sleep 0.1; printf three")
    await cri.ended(id_)
    assert log_lines(pod.config, "main/0.log") == [
        ("stdout", "F", "one"),
        ("stderr", "F", "two"),
        ("stdout", "P", "three"),
    ]


async def test_exit_codes_are_reported(cri):
    pod = await cri.run()
    wanted = {"exit 0": (0, "Completed"), "exit 3": (3, "Error"), "kill -9 $$": (137, "Error")}
    ids = [await cri.start(pod, command, name=f"c{number}") for number, command in enumerate(wanted)]
    ended = [await cri.ended(id_) for id_ in ids]
    assert [(item.exit_code, item.reason) for item in ended[:2]] == list(wanted.values())[:2]


async def test_a_container_that_cannot_start_reports_the_reason(cri, shared):
    pod = await cri.run()
    id_ = await cri.create(pod, cri.container_config("/no/such/program", "x"))
    error = await cri.refused("StartContainer", container_id=id_)
    assert "no/such/program" in str(error)
    status = await cri.status(id_)
    assert (status.state, status.exit_code, status.reason) == (pb.CONTAINER_EXITED, 128, "StartError")
    assert "no/such/program" in status.message
    assert [mount for mount in shared.space.mounts() if id_ in mount] == []


async def test_a_restart_is_a_new_container_with_the_next_attempt(cri):
    pod = await cri.run()
    for attempt in range(3):
        config = cri.container_config("exit 1", log_path=f"main/{attempt}.log")
        config.metadata.attempt = attempt
        id_ = await cri.start(pod, config=config)
        assert (await cri.ended(id_)).metadata.attempt == attempt
    rows = (await cri("ListContainers", filter=pb.ContainerFilter(pod_sandbox_id=pod.id))).containers
    assert sorted(row.metadata.attempt for row in rows) == [0, 1, 2]


async def test_a_container_that_ignores_term_is_killed_after_the_grace(cri):
    pod = await cri.run()
    id_ = await cri.start(pod, "trap '' TERM; while :; do sleep 0.05; done")
    begun = time.monotonic()
    await cri("StopContainer", container_id=id_, timeout=1)
    assert 1.0 <= time.monotonic() - begun < 5
    assert (await cri.status(id_)).exit_code == 137


async def test_a_container_is_stopped_by_the_signal_that_it_asked_for(cri):
    pod = await cri.run()
    config = cri.container_config("trap 'exit 7' USR1; trap '' TERM; while :; do sleep 0.05; done")
    config.stop_signal = pb.Signal.Value("SIGUSR1")
    id_ = await cri.start(pod, config=config)
    await asyncio.sleep(0.3)
    await cri("StopContainer", container_id=id_, timeout=10)
    assert (await cri.status(id_)).exit_code == 7


async def test_stop_and_remove_are_idempotent(cri):
    for method, name in [
        ("StopPodSandbox", "pod_sandbox_id"),
        ("RemovePodSandbox", "pod_sandbox_id"),
        ("StopContainer", "container_id"),
        ("RemoveContainer", "container_id"),
    ]:
        await cri(method, **{name: "f" * 64})
    await cri("RemoveImage", image=pb.ImageSpec(image="podwire.local/nothing:latest"))


async def test_pods_reach_each_other(cri):
    one, two = await asyncio.gather(cri.run(), cri.run())
    config = cri.container_config()
    config.linux.security_context.capabilities.add_capabilities.append("NET_RAW")
    id_ = await cri.start(one, config=config)
    await cri.said(id_, "ping", "-c1", "-W2", two.ip)
    assert one.ip != two.ip


async def test_ten_concurrent_calls_for_one_pod_create_one_sandbox(cri, shared):
    config = cri.pod_config()
    before = set((shared.prefix / "run/netns").glob("*"))
    made = await asyncio.gather(*(cri("RunPodSandbox", config=config) for _ in range(10)))
    assert len({item.pod_sandbox_id for item in made}) == 1
    assert len(set((shared.prefix / "run/netns").glob("*")) - before) == 1


async def test_a_pod_of_the_same_name_with_another_configuration_is_refused(cri):
    pod = await cri.run()
    config = cri.pod_config()
    config.metadata.CopyFrom(pod.config.metadata)
    error = await cri.refused("RunPodSandbox", config=config)
    assert (error.code, pod.id in str(error)) == (6, True)


async def test_lists_are_filtered_by_state_label_and_id(cri):
    one, two = await cri.run(), await cri.run()
    await cri("StopPodSandbox", pod_sandbox_id=two.id)

    async def listed(**wanted):
        rows = (await cri("ListPodSandbox", filter=pb.PodSandboxFilter(**wanted))).items
        return {row.id for row in rows}

    assert await listed(state=pb.PodSandboxStateValue(state=pb.SANDBOX_READY)) == {one.id}
    assert await listed(state=pb.PodSandboxStateValue(state=pb.SANDBOX_NOTREADY)) == {two.id}
    assert await listed(label_selector={"io.kubernetes.pod.name": two.config.metadata.name}) == {two.id}
    assert await listed(id=one.id[:13]) == {one.id}
    assert await listed(label_selector={"a": "b"}) == set()
