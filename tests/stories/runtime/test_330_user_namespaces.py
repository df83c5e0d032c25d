"""Pods with a user namespace of their own (`hostUsers: false`): their root is an unprivileged user of the host."""

import os
from pathlib import Path

import pytest

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument

FIRST, COUNT = 1 << 20, 1 << 16


def options(first=FIRST, count=COUNT, **fields):
    mapping = [pb.IDMapping(host_id=first, container_id=0, length=count)]
    user = pb.UserNamespace(mode=pb.POD, uids=mapping, gids=mapping)
    return pb.NamespaceOption(**{"pid": pb.CONTAINER, "userns_options": user, **fields})


@pytest.fixture
async def mapped(cri, shared):
    """A pod with its own ids."""
    features = (await cri("Status")).runtime_handlers[0].features
    if not features.user_namespaces:
        pytest.skip("user namespaces need Linux 6.3 and crun 1.8")
    shared.prefix.chmod(0o711)  # as /run is
    config = cri.pod_config()
    config.linux.security_context.namespace_options.CopyFrom(options())
    return await cri.run(config)


def container(cri, *command, **fields):
    config = cri.container_config(*command, **fields)
    config.linux.security_context.namespace_options.CopyFrom(options())
    return config


async def test_root_of_the_pod_is_an_unprivileged_user_of_the_host(cri, mapped):
    id_ = await cri.start(mapped, config=container(cri))
    assert (await cri.said(id_, "id -u; cat /proc/self/uid_map")).split() == ["0", "0", str(FIRST), str(COUNT)]
    assert owner(f"/proc/{await cri.pid(id_)}") == FIRST
    assert (await cri.said(id_, "stat -c %u / /bin/sh /dev/shm /etc/hostname")).split() == ["0"] * 4


def owner(path):
    return Path(path).stat().st_uid


async def test_the_image_is_writable_without_being_changed(cri, mapped):
    id_ = await cri.start(mapped, config=container(cri))
    await cri.said(id_, "touch /new; chown 1000:1000 /new; echo x >> /etc/passwd; rm /bin/vi; mkdir -p /a/b")
    assert await cri.said(id_, "stat -c %u:%g /new") == "1000:1000\n"
    other = await cri.start(mapped, config=container(cri, name="other"))
    assert (await cri.exec(other, "ls /new")).exit_code != 0
    assert (await cri.exec(other, "ls /bin/vi")).exit_code == 0


async def test_root_of_the_pod_cannot_read_a_file_of_the_hosts_root(cri, shared, mapped):
    secret = shared.prefix / "secret"
    secret.write_text("secret of the host")
    secret.chmod(0o600)
    config = container(cri)
    config.mounts.add(host_path=str(secret), container_path="/secret")
    config.linux.security_context.capabilities.add_capabilities.append("ALL")
    id_ = await cri.start(mapped, config=config)
    done = await cri.exec(id_, "cat /secret")
    assert b"Permission denied" in done.stderr, done


async def test_a_mapped_volume_has_the_owners_that_it_has_on_the_host(cri, shared, mapped):
    volume = shared.prefix / "mapped-volume"
    volume.mkdir()
    (volume / "file").write_text("x")
    os.chown(volume / "file", 1000, 1000)
    config = container(cri)
    mapping = options().userns_options.uids
    for path, readonly in (("/rw", False), ("/ro", True)):
        config.mounts.add(
            host_path=str(volume), container_path=path, uidMappings=mapping, gidMappings=mapping, readonly=readonly
        )
    id_ = await cri.start(mapped, config=config)
    assert await cri.said(id_, "stat -c %u /rw/file; touch /rw/new") == "1000\n"
    assert owner(volume / "new") == 0
    assert b"Read-only" in (await cri.exec(id_, "touch /ro/new")).stderr


async def test_the_network_of_the_pod_belongs_to_it(cri, mapped):
    config = container(cri)
    config.linux.security_context.capabilities.add_capabilities.append("NET_ADMIN")
    id_ = await cri.start(mapped, config=config)
    assert mapped.ip
    assert mapped.ip in await cri.said(id_, "ip addr add 192.0.2.1/32 dev lo; ip addr; grep sysfs /proc/mounts")


async def test_proc_is_masked_unless_the_kubelet_sends_no_paths(cri, mapped):
    """`procMount: Unmasked` is an empty list in CRI."""
    mounts = "grep -c ' /proc/' /proc/mounts; true"
    bare = await cri.start(mapped, config=container(cri))
    assert await cri.said(bare, mounts) == "0\n"
    config = container(cri, name="masked")
    config.linux.security_context.masked_paths.append("/proc/kcore")
    assert int(await cri.said(await cri.start(mapped, config=config), mounts)) > 0
    pod = await cri.run()
    assert int(await cri.said(await cri.start(pod), mounts)) > 3


async def test_a_user_outside_of_the_pods_ids_is_refused(cri, mapped):
    config = container(cri)
    config.linux.security_context.run_as_user.value = COUNT
    error = await cri.refused("CreateContainer", pod_sandbox_id=mapped.id, config=config, sandbox_config=mapped.config)
    assert f"id {COUNT} is not one of the pod's {COUNT} ids" in str(error)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"network": pb.NODE}, "node's network namespace", id="the node's network"),
        pytest.param({"pid": pb.NODE}, "node's pid namespace", id="the node's processes"),
        pytest.param({"first": 0}, "host_id and length", id="root of the host"),
        pytest.param({"first": 2**32 - 10}, "host_id and length", id="ids that do not exist"),
        pytest.param({"userns_options": pb.UserNamespace(mode=pb.POD)}, "has 0 mappings", id="no mapping"),
        pytest.param({"userns_options": pb.UserNamespace(mode=pb.CONTAINER)}, "CONTAINER is not supported", id="mode"),
    ],
)
async def test_an_invalid_user_namespace_is_refused(cri, changes, words):
    config = cri.pod_config()
    config.linux.security_context.namespace_options.CopyFrom(options(**changes))
    error = await cri.refused("RunPodSandbox", config=config)
    assert isinstance(error, InvalidArgument)
    assert words in str(error)


async def test_a_container_of_a_mapped_pod_survives_the_runtime(own, kubelet_of):
    own.prefix.chmod(0o711)
    own.start()
    async with kubelet_of(own) as cri:
        if not (await cri("Status")).runtime_handlers[0].features.user_namespaces:
            pytest.skip("user namespaces need Linux 6.3 and crun 1.8")
        config = cri.pod_config("kept")
        config.linux.security_context.namespace_options.CopyFrom(options())
        pod = await cri.run(config)
        id_ = await cri.start(pod, config=container(cri))
    own.restart()
    async with kubelet_of(own) as cri:
        assert (await cri.status(id_)).state == pb.CONTAINER_RUNNING
        assert (await cri.said(id_, "id -u")) == "0\n"
        second = await cri.start(pod, config=container(cri, name="second"))
        assert (await cri.said(second, "cat /proc/self/uid_map")).split()[1] == str(FIRST)
        await cri.remove(pod)
    assert own.leaks() == []
    assert own.leakcheck() == (0, [])
    for name in ("userns", "rootfs"):
        assert list((own.prefix / "run/podwire" / name).iterdir()) == []


async def test_containers_share_a_pid_namespace_that_the_pod_owns(cri, mapped):
    configs = [container(cri, name=name) for name in ("first", "second")]
    for config in configs:
        config.linux.security_context.namespace_options.CopyFrom(options(pid=pb.POD))
    first, second = [await cri.start(mapped, config=config) for config in configs]
    assert await cri.said(first, "readlink /proc/self/ns/pid") == await cri.said(second, "readlink /proc/self/ns/pid")
    assert await cri.said(second, "cat /proc/1/comm") == "pause\n"


async def test_an_image_volume_has_the_owners_that_the_image_has(cri, mapped):
    config = container(cri)
    mount = pb.Mount(container_path="/image", readonly=True, image=pb.ImageSpec(image=config.image.image))
    config.mounts.append(mount)
    id_ = await cri.start(mapped, config=config)
    assert await cri.said(id_, "stat -c %u:%g /image/bin/busybox") == "0:0\n"
    assert (await cri.exec(id_, "touch /image/x")).exit_code != 0
