"""Containers that share the pid namespace of their pod: `shareProcessNamespace`, and CRI's default."""

from podwire.protocols.cri import cri_pb2 as pb
from tests.eventually import eventually, eventually_async

LOOP = "sh", "-c", "while :; do sleep 0.05; done"


def sharing(cri, name, *command):
    config = cri.container_config(*command, name=name)
    config.linux.security_context.namespace_options.pid = pb.POD
    return config


def pause_groups(runtime, sandbox):
    return [group for group in runtime.groups() if group.endswith(f"/{sandbox.id}")]


async def test_01_containers_see_and_signal_each_other(cri, shared):
    sandbox = await cri.run()
    first = await cri.start(sandbox, config=sharing(cri, "first", *LOOP))
    second = await cri.start(sandbox, config=sharing(cri, "second", "sh", "-c", "exec sleep 4242"))
    processes = await cri.said(first, "ps -o pid,args")
    assert "sleep 4242" in processes
    assert await cri.said(first, "readlink /proc/self/ns/pid") == await cri.said(second, "readlink /proc/self/ns/pid")
    await cri.said(
        first, "kill -9 $(pidof sleep | tr ' ' '\\n' | while read p; do grep -q 4242 /proc/$p/cmdline && echo $p; done)"
    )
    await eventually_async(lambda: exited(cri, second))
    assert (await cri.status(first)).state == pb.CONTAINER_RUNNING


async def exited(cri, id_):
    return (await cri.status(id_)).state == pb.CONTAINER_EXITED


async def test_02_the_first_process_shows_nothing_of_the_host(cri, shared):
    sandbox = await cri.run()
    id_ = await cri.start(sandbox, config=sharing(cri, "main", *LOOP))
    assert (await cri.said(id_, "cat /proc/1/comm")) == "pause\n"
    assert (await cri.said(id_, "cat /proc/1/cmdline")).rstrip("\0") == f"pause {sandbox.id}"
    assert "Permission denied" in await cri.said(id_, "ls /proc/1/root/ 2>&1; true")
    assert (await cri.said(id_, "ls -l /proc/1/fd 2>&1; true")).count("->") == 0
    [pause] = [pid for group in pause_groups(shared, sandbox) for pid in group_pids(shared, group)]
    root = shared.space.output("sh", "-c", f"ls -A /proc/{pause}/root/ | wc -l")
    assert root == "0\n"


def group_pids(runtime, group):
    from podwire.linux.cgroups.groups import KernelCgroups

    return KernelCgroups().pids(group)


async def test_03_a_privileged_container_finds_an_empty_root_there(cri, shared):
    sandbox = await cri.run()
    config = sharing(cri, "main", *LOOP)
    config.linux.security_context.privileged = True
    id_ = await cri.start(sandbox, config=config)
    assert await cri.said(id_, "ls -A /proc/1/root/") == ""


async def test_04_orphans_in_the_namespace_are_reaped(cri, shared):
    sandbox = await cri.run()
    id_ = await cri.start(sandbox, config=sharing(cri, "main", *LOOP))
    await cri.said(id_, "for i in 1 2 3 4 5; do (sleep 0.01 & ) ; done; sleep 0.3")
    assert "Z" not in (await cri.said(id_, "ps -o stat")).replace("STAT", "")


async def test_05_other_pods_have_no_pause_process(cri, shared):
    sandbox = await cri.run()
    await cri.start(sandbox)
    assert pause_groups(shared, sandbox) == []
    assert list((shared.prefix / "run/podwire/pidns").glob(f"*{sandbox.id}")) == []


async def test_06_without_namespace_options_the_namespace_is_shared(cri, shared):
    sandbox = await cri.run()
    config = cri.container_config(*LOOP)
    config.linux.ClearField("security_context")
    id_ = await cri.start(sandbox, config=config)
    assert (await cri.said(id_, "cat /proc/1/comm")) == "pause\n"


async def test_07_a_pause_process_that_was_killed_is_started_again_for_the_next_container(cri, shared):
    sandbox = await cri.run()
    first = await cri.start(sandbox, config=sharing(cri, "first", *LOOP))
    [group] = pause_groups(shared, sandbox)
    shared.space.output("kill", "-9", *group_pids(shared, group))
    await eventually_async(lambda: exited(cri, first))
    second = await cri.start(sandbox, config=sharing(cri, "second", *LOOP))
    assert (await cri.said(second, "cat /proc/1/comm")) == "pause\n"


async def test_08_nothing_is_left_of_a_pod_that_is_stopped(cri, shared):
    sandbox = await cri.run()
    await cri.start(sandbox, config=sharing(cri, "main", *LOOP))
    await cri("StopPodSandbox", pod_sandbox_id=sandbox.id)
    assert pause_groups(shared, sandbox) == []
    assert list((shared.prefix / "run/podwire/pidns").glob("*")) == []


async def test_09_the_namespace_survives_a_restart_of_the_runtime(own, kubelet_of):
    own.start()
    async with kubelet_of(own) as cri:
        sandbox = await cri.run()
        first = await cri.start(sandbox, config=sharing(cri, "first", *LOOP))
        before = await cri.said(first, "readlink /proc/self/ns/pid")
    own.restart()
    async with kubelet_of(own) as cri:
        second = await cri.start(sandbox, config=sharing(cri, "second", *LOOP))
        assert await cri.said(second, "readlink /proc/self/ns/pid") == before
        await cri("StopPodSandbox", pod_sandbox_id=sandbox.id)
        await cri("RemovePodSandbox", pod_sandbox_id=sandbox.id)
    assert own.leaks() == []


async def test_10_a_lost_record_leaves_no_pause_process(own, kubelet_of):
    own.start()
    async with kubelet_of(own) as cri:
        sandbox = await cri.run()
        await cri.start(sandbox, config=sharing(cri, "main", *LOOP))
    own.kill()
    for path in (own.state / "runtime").glob("*/*/record.json"):
        path.unlink()
    own.start()
    eventually(lambda: own.leaks() == [], 30, explain=own.leaks)
