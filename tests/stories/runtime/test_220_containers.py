"""A container's view and rights: files, devices, users, limits, names."""

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from podwire.linux.cgroups.groups import KernelCgroups
from podwire.protocols.cri import cri_pb2 as pb
from tests.eventually import eventually_async

IMAGE = "podwire.local/busybox:latest"


async def test_dns_hostname_and_sysctls_are_the_pods_own(cri):
    config = cri.pod_config("named")
    config.dns_config.servers.append("10.0.0.10")
    config.dns_config.searches.extend(["a.svc", "svc"])
    config.dns_config.options.append("ndots:5")
    config.linux.sysctls["net.ipv4.ip_unprivileged_port_start"] = "80"
    id_ = await cri.start(await cri.run(config))
    assert await cri.said(id_, "cat /etc/resolv.conf") == "nameserver 10.0.0.10\nsearch a.svc svc\noptions ndots:5\n"
    assert await cri.said(id_, "hostname; cat /etc/hostname; echo $HOSTNAME") == "named\nnamed\nnamed\n"
    assert await cri.said(id_, "cat /proc/sys/net/ipv4/ip_unprivileged_port_start") == "80\n"


async def test_a_host_network_pod_has_the_nodes_links(cri, shared):
    config = cri.pod_config()
    config.hostname = ""
    config.linux.security_context.namespace_options.network = pb.NODE
    pod = await cri.run(config)
    assert pod.ip == ""
    container = cri.container_config()
    container.linux.security_context.namespace_options.network = pb.NODE
    id_ = await cri.start(pod, config=container)
    assert "story0" in await cri.said(id_, "ip link") or "story0" not in shared.space.links()
    pid = await cri.pid(id_)
    assert Path(f"/proc/{pid}/ns/net").readlink() == Path(f"/proc/{shared.space.pid}/ns/net").readlink()  # noqa: ASYNC240 - procfs


async def test_a_containers_user_groups_and_capabilities(cri):
    pod = await cri.run()
    config = cri.container_config()
    security = config.linux.security_context
    security.run_as_user.value, security.run_as_group.value = 1234, 2345
    security.supplemental_groups.append(3456)
    security.capabilities.drop_capabilities.append("ALL")
    security.no_new_privs = True
    id_ = await cri.start(pod, config=config)
    assert await cri.said(id_, "id -u; id -g; id -G") == "1234\n2345\n2345 3456\n"
    status = await cri.said(id_, "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/1/status")
    assert status.split() == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
    user = (await cri.status(id_)).user.linux
    assert (user.uid, user.gid, list(user.supplemental_groups)) == (1234, 2345, [2345, 3456])


async def test_runtime_default_seccomp_refuses_namespaces_and_mounts(cri):
    pod = await cri.run()
    config = cri.container_config()
    config.linux.security_context.seccomp.profile_type = pb.SecurityProfile.RuntimeDefault
    id_ = await cri.start(pod, config=config)
    assert await cri.said(id_, "grep Seccomp: /proc/1/status") == "Seccomp:\t2\n"
    assert (await cri.exec(id_, "unshare -n true || unshare -U true")).exit_code != 0
    assert (await cri.exec(id_, "mount -t tmpfs none /tmp")).exit_code != 0


async def test_mounts_are_read_only_or_propagate_as_asked(cri, shared):
    source = shared.prefix / "volume"
    source.mkdir(exist_ok=True)
    (source / "file").write_text("here\n")
    shared.space.output("sh", "-c", f"mount --bind {source} {source} && mount --make-shared {source}")
    try:
        config = cri.container_config()
        config.mounts.add(host_path=str(source), container_path="/fixed", readonly=True)
        config.mounts.add(host_path=str(source), container_path="/live", propagation=pb.PROPAGATION_HOST_TO_CONTAINER)
        config.mounts.add(host_path=str(source), container_path="/apart")
        id_ = await cri.start(await cri.run(), config=config)
        assert await cri.said(id_, "cat /fixed/file /live/file") == "here\nhere\n"
        assert (await cri.exec(id_, "echo no > /fixed/file")).exit_code != 0
        await cri.said(id_, "echo yes > /live/file && mkdir /live/later")
        shared.space.output("mount", "-t", "tmpfs", "none", source / "later")
        shared.space.output("touch", source / "later/new")
        assert await cri.said(id_, "ls /live/later") == "new\n"
        assert await cri.said(id_, "ls /apart/later") == ""
        assert [mount.container_path for mount in (await cri.status(id_)).mounts] == ["/fixed", "/live", "/apart"]
    finally:
        shared.space.output("sh", "-c", f"umount -R {source}")


async def test_a_read_only_root_and_shared_memory_of_the_pod(cri):
    pod = await cri.run()
    config = cri.container_config()
    config.linux.security_context.readonly_rootfs = True
    one = await cri.start(pod, config=config)
    two = await cri.start(pod, name="two")
    assert (await cri.exec(one, "touch /file")).exit_code != 0
    await cri.said(one, "echo shared > /dev/shm/x")
    assert await cri.said(two, "cat /dev/shm/x") == "shared\n"


async def test_devices_are_those_that_were_asked_for(cri):
    config = cri.container_config()
    config.devices.add(host_path="/dev/full", container_path="/dev/mine", permissions="rw")
    id_ = await cri.start(await cri.run(), config=config)
    assert (await cri.said(id_, "stat -c %t:%T /dev/mine")).strip() == "1:7"
    assert (await cri.exec(id_, "echo x > /dev/mine")).exit_code != 0


async def test_a_privileged_container_has_the_hosts_devices(cri):
    config = cri.container_config()
    config.linux.security_context.privileged = True
    id_ = await cri.start(await cri.run(), config=config)
    await cri.said(id_, "test -c /dev/kmsg || test -c /dev/full; mount -t tmpfs none /tmp")


def limit_of(runtime, id_):
    group = (runtime.state / "runtime/containers" / id_ / "cgroup").read_text()
    for tree in KernelCgroups().trees:
        for name in ("memory.limit_in_bytes", "memory.max"):
            with contextlib.suppress(OSError):
                return int(Path(tree.mount, group, name).read_text())
    return None


async def test_limits_hold_and_can_be_changed(cri, shared):
    config = cri.container_config()
    config.linux.resources.memory_limit_in_bytes = 64 << 20
    id_ = await cri.start(await cri.run(), config=config)
    assert limit_of(shared, id_) == 64 << 20
    wanted = pb.LinuxContainerResources(memory_limit_in_bytes=96 << 20)
    await cri("UpdateContainerResources", container_id=id_, linux=wanted)
    assert limit_of(shared, id_) == 96 << 20
    assert (await cri.status(id_)).resources.linux.memory_limit_in_bytes == 96 << 20


async def test_exceeding_the_memory_limit_is_oom_killed(cri):
    config = cri.container_config("exec tail /dev/zero")
    config.linux.resources.memory_limit_in_bytes = 16 << 20
    id_ = await cri.start(await cri.run(), config=config)
    status = await cri.ended(id_)
    assert (status.exit_code, status.reason) == (137, "OOMKilled")


async def test_usage_grows(cri):
    pod = await cri.run()
    id_ = await cri.start(pod, "while :; do :; done")

    async def used():
        return (await cri("ContainerStats", container_id=id_)).stats

    first = (await used()).cpu.usage_core_nano_seconds.value
    await asyncio.sleep(0.3)
    stats = await used()
    assert stats.cpu.usage_core_nano_seconds.value > first
    assert stats.memory.working_set_bytes.value > 0
    await cri.exec(id_, "head -c 300000 /dev/zero > /written")
    await eventually_async(lambda: _at_least(used, 300_000))
    pods = (await cri("PodSandboxStats", pod_sandbox_id=pod.id)).stats.linux
    assert pods.cpu.usage_core_nano_seconds.value >= stats.cpu.usage_core_nano_seconds.value
    rows = (await cri("ListContainerStats", filter=pb.ContainerStatsFilter(id=id_))).stats
    assert [row.attributes.id for row in rows] == [id_]


async def _at_least(used, amount):
    return (await used()).writable_layer.used_bytes.value >= amount


async def test_a_rotated_log_is_reopened(cri):
    pod = await cri.run()
    id_ = await cri.start(pod, "while :; do echo line; sleep 0.02; done")
    log = Path((await cri.status(id_)).log_path)
    await eventually_async(log.read_bytes)
    log.rename(log.with_name("old"))  # noqa: ASYNC240 - one system call
    await cri("ReopenContainerLog", container_id=id_)
    await eventually_async(log.read_bytes)
    await cri("StopContainer", container_id=id_, timeout=0)
    assert (await cri.refused("ReopenContainerLog", container_id=id_)).code == 9


async def test_events_come_in_order_with_the_pods_status(cri):
    seen = []

    async def listen():
        async for event in cri.events():
            seen.append(event)  # noqa: PERF401 - as they come

    listening = asyncio.create_task(listen())
    try:
        while not seen:  # a stream says nothing of its beginning
            await cri.remove(await cri.run())
        pod = await cri.run()
        id_ = await cri.start(pod, "exit 0")
        await cri.ended(id_)
        await cri.remove(pod)
        await eventually_async(
            lambda: seen[-1].container_event_type == pb.CONTAINER_DELETED_EVENT and _of(seen, pod, pod.id)
        )
        mine = [item for item in seen if item.pod_sandbox_status.id == pod.id]
        kinds = ["CREATED", "STARTED", "STOPPED", "DELETED"]
        for owner in (pod.id, id_):
            owned = [item for item in mine if item.container_id == owner]
            assert [pb.ContainerEventType.Name(item.container_event_type)[10:-6] for item in owned] == kinds
        assert mine[-1].container_id == pod.id
        stopped = next(item for item in mine if item.container_id == id_ and item.container_event_type == 2)
        assert stopped.containers_statuses[0].state == pb.CONTAINER_EXITED
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


def _of(seen, pod, owner):
    return seen[-1].pod_sandbox_status.id == pod.id and seen[-1].container_id == owner


async def test_images_are_listed_and_not_removed_while_in_use(own, kubelet_of):
    own.start()
    async with kubelet_of(own) as cri:
        (image,) = (await cri("ListImages")).images
        assert list(image.repo_tags) == [IMAGE]
        found = (await cri("ImageStatus", image=pb.ImageSpec(image=IMAGE))).image
        assert found.id == image.id
        assert not (await cri("ImageStatus", image=pb.ImageSpec(image="podwire.local/no:1"))).HasField("image")
        assert (await cri("PullImage", image=pb.ImageSpec(image=IMAGE))).image_ref == image.id
        assert (await cri.refused("PullImage", image=pb.ImageSpec(image="podwire.local/no:1"))).code == 5
        assert (await cri("ImageFsInfo")).image_filesystems[0].used_bytes.value > 1_000_000
        pod = await cri.run()
        await cri.start(pod)
        assert (await cri.refused("RemoveImage", image=pb.ImageSpec(image=IMAGE))).code == 9
        await cri.remove(pod)
        await cri("RemoveImage", image=pb.ImageSpec(image=IMAGE))
        assert list((await cri("ListImages")).images) == []


async def test_a_joined_pid_namespace_shows_the_targets_processes(cri):
    pod = await cri.run()
    target = await cri.start(pod, "exec sleep 4567")
    config = cri.container_config(name="debugger")
    config.linux.security_context.namespace_options.pid = pb.TARGET
    config.linux.security_context.namespace_options.target_id = target
    id_ = await cri.start(pod, config=config)
    assert "sleep 4567" in await cri.said(id_, "ps")


@pytest.mark.parametrize("method", ["CheckpointContainer", "StreamContainers"])
async def test_unsupported_calls_are_refused_by_name(cri, method):
    error = await cri.refused(method)
    assert error.code == 12
    assert method in str(error)


async def test_the_verbose_status_has_the_pid_where_containerd_has_it(cri):
    pod = await cri.run()
    id_ = await cri.start(pod)
    info = (await cri("ContainerStatus", container_id=id_, verbose=True)).info
    assert json.loads(info["info"]) == {"sandboxID": pod.id, "pid": await cri.pid(id_)}


async def test_version_and_runtime_config_answer_a_kubelet(cri):
    version = await cri("Version", version="0.1.0")
    assert (version.version, version.runtime_api_version) == ("0.1.0", "v1")
    assert version.runtime_name
    assert version.runtime_version
    assert (await cri("RuntimeConfig")).linux.cgroup_driver == pb.CGROUPFS
    conditions = {condition.type: condition.status for condition in (await cri("Status")).status.conditions}
    assert conditions == {"RuntimeReady": True, "NetworkReady": True}
