"""Input that cannot be: refused with the field's name, and nothing is left of it."""

import pytest

from podwire.protocols.cri import cri_pb2 as pb

PODS = {
    "no name": (3, "metadata.name", lambda each: each.metadata.ClearField("name")),
    "no namespace": (3, "metadata.namespace", lambda each: each.metadata.ClearField("namespace")),
    "no uid": (3, "metadata.uid", lambda each: each.metadata.ClearField("uid")),
    "a path as name": (3, "metadata.name", lambda each: setattr(each.metadata, "name", "../../etc")),
    "a name with a line break": (3, "metadata.name", lambda each: setattr(each.metadata, "name", "a\n")),
    "a semicolon in the uid": (3, "metadata.uid", lambda each: setattr(each.metadata, "uid", "a;IgnoreUnknown=0")),
    "a long hostname": (3, "hostname", lambda each: setattr(each, "hostname", "h" * 65)),
    "a hostname of two lines": (3, "hostname", lambda each: setattr(each, "hostname", "a\nb")),
    "a relative log directory": (3, "log_directory", lambda each: setattr(each, "log_directory", "logs")),
    "a climbing log directory": (3, "log_directory", lambda each: setattr(each, "log_directory", "/a/../b")),
    "a climbing cgroup": (3, "cgroup_parent", lambda each: setattr(each.linux, "cgroup_parent", "/a/../../b")),
    "a server of two lines": (3, "dns_config", lambda each: each.dns_config.servers.append("1.1.1.1\noptions x")),
    "the node's sysctl": (
        3,
        "kernel.core_pattern",
        lambda each: each.linux.sysctls.update({"kernel.core_pattern": "|x"}),
    ),
    "joined sysctls": (
        3,
        "sysctls",
        lambda each: each.linux.sysctls.update({"kernel.shm_rmid_forced+kernel.core": "1"}),
    ),
    "a climbing sysctl": (3, "sysctls", lambda each: each.linux.sysctls.update({"net/../kernel/core_pattern": "1"})),
    "a port too high": (3, "port_mappings[0]", lambda each: each.port_mappings.add(container_port=65536)),
    "labels too large": (3, "labels", lambda each: each.labels.update({"a": "b" * 300_000})),
}

CONTAINERS = {
    "no name": (3, "metadata.name", lambda each: each.metadata.ClearField("name")),
    "a path as name": (3, "metadata.name", lambda each: setattr(each.metadata, "name", "a/b")),
    "no image": (3, "image.image", lambda each: each.image.ClearField("image")),
    "an image that is not here": (5, "image.image", lambda each: setattr(each.image, "image", "podwire.local/no:1")),
    "an image that cannot be": (5, "image.image", lambda each: setattr(each.image, "image", "NO:::")),
    "an absolute log": (3, "log_path", lambda each: setattr(each, "log_path", "/etc/passwd")),
    "a climbing log": (3, "log_path", lambda each: setattr(each, "log_path", "../../x.log")),
    "a relative working directory": (3, "working_dir", lambda each: setattr(each, "working_dir", "here")),
    "a zero in the command": (3, "command", lambda each: each.command.append("a\0b")),
    "a zero in a variable": (3, "envs[0].value", lambda each: each.envs.add(key="A", value=b"a\0b")),
    "a variable's name with =": (3, "envs[0].key", lambda each: each.envs.add(key="A=B")),
    "a relative mount": (
        3,
        "mounts[0].container_path",
        lambda each: each.mounts.add(host_path="/", container_path="x"),
    ),
    "a mount from nowhere": (3, "mounts[0].host_path", lambda each: each.mounts.add(container_path="/x")),
    "an unknown propagation": (
        3,
        "mounts[0].propagation",
        lambda each: each.mounts.add(host_path="/", container_path="/x", propagation=77),
    ),
    "an image as a writable volume": (
        3,
        "mounts[0].readonly",
        lambda each: each.mounts.add(container_path="/x", image=pb.ImageSpec(image="a")),
    ),
    "no such device": (5, "devices[0].host_path", lambda each: each.devices.add(host_path="/dev/no")),
    "strange permissions": (3, "devices[0]", lambda each: each.devices.add(host_path="/dev/null", permissions="x")),
    "CDI": (3, "CDI_devices", lambda each: each.CDI_devices.add(name="vendor/class=0")),
    "no such capability": (
        3,
        "add_capabilities",
        lambda each: each.linux.security_context.capabilities.add_capabilities.append("FLY"),
    ),
    "a group without a user": (
        3,
        "run_as_group",
        lambda each: setattr(each.linux.security_context.run_as_group, "value", 5),
    ),
    "a user beyond all": (
        3,
        "run_as_user",
        lambda each: setattr(each.linux.security_context.run_as_user, "value", 2**32 - 1),
    ),
    "a user that is not in the image": (
        3,
        "nobody-here",
        lambda each: setattr(each.linux.security_context, "run_as_username", "nobody-here"),
    ),
    "a target that is not there": (
        5,
        "container",
        lambda each: each.linux.security_context.namespace_options.MergeFrom(
            pb.NamespaceOption(pid=pb.TARGET, target_id="f" * 64)
        ),
    ),
    "raw cgroup settings": (3, "unified", lambda each: each.linux.resources.unified.update({"memory.high": "1"})),
}


async def test_pods_that_cannot_be(cri, shared):
    before = shared.leaks()
    for name, (code, field, change) in PODS.items():
        config = cri.pod_config()
        change(config)
        error = await cri.refused("RunPodSandbox", config=config)
        assert (error.code, field in str(error)) == (code, True), f"{name}: {error!r}"
    error = await cri.refused("RunPodSandbox", config=cri.pod_config(), runtime_handler="kata")
    assert (error.code, "runtime_handler" in str(error)) == (3, True)
    assert shared.leaks() == before


async def test_containers_that_cannot_be(cri, shared):
    made = await cri.run()
    before = shared.leaks()
    for name, (code, field, change) in CONTAINERS.items():
        config = cri.container_config()
        change(config)
        error = await cri.refused("CreateContainer", pod_sandbox_id=made.id, config=config)
        assert (error.code, field in str(error)) == (code, True), f"{name}: {error!r}"
    assert shared.leaks() == before


@pytest.mark.parametrize("id_", ["", "f" * 64, "../../x", "a\0b", "x" * 10_000])
async def test_unknown_ids(cri, id_):
    for method in ("ContainerStatus", "StartContainer", "ContainerStats", "ReopenContainerLog"):
        assert (await cri.refused(method, container_id=id_)).code == 5, method
    for method in ("PodSandboxStatus", "PodSandboxStats"):
        assert (await cri.refused(method, pod_sandbox_id=id_)).code == 5, method
    config = cri.container_config()
    assert (await cri.refused("CreateContainer", pod_sandbox_id=id_, config=config)).code == 5


async def test_calls_in_the_wrong_order(cri):
    made = await cri.run()
    id_ = await cri.start(made)
    assert (await cri.refused("StartContainer", container_id=id_)).code == 9
    other = cri.container_config("exit 0")
    assert (await cri.refused("CreateContainer", pod_sandbox_id=made.id, config=other)).code == 6
    assert (await cri("CreateContainer", pod_sandbox_id=made.id, config=cri.container_config())).container_id == id_
    assert (await cri.refused("StopContainer", container_id=id_, timeout=-1)).code == 3
    late = await cri.create(made, cri.container_config(name="late"))
    await cri("StopPodSandbox", pod_sandbox_id=made.id)
    await cri("StopPodSandbox", pod_sandbox_id=made.id)
    assert (await cri.refused("StartContainer", container_id=late)).code == 9
    config = cri.container_config(name="later")
    assert (await cri.refused("CreateContainer", pod_sandbox_id=made.id, config=config)).code == 9
    await cri("RemovePodSandbox", pod_sandbox_id=made.id)
    await cri("RemovePodSandbox", pod_sandbox_id=made.id)


async def test_images_must_be_named(cri):
    for method in ("ImageStatus", "PullImage", "RemoveImage"):
        assert (await cri.refused(method, image=pb.ImageSpec())).code == 3, method


@pytest.mark.parametrize("image", ["NO:::", "sha256:zz", "../../etc/passwd"])
async def test_an_image_that_cannot_be_is_not_there(cri, image):
    assert not (await cri("ImageStatus", image=pb.ImageSpec(image=image))).HasField("image")
    assert (await cri.refused("PullImage", image=pb.ImageSpec(image=image))).code in (3, 14)  # one is a name and a tag


async def test_limits_that_the_kernel_does_not_take(cri):
    id_ = await cri.start(await cri.run())
    for wanted in ({"memory_limit_in_bytes": 1}, {"cpu_shares": -5}, {"cpuset_cpus": "no"}):
        error = await cri.refused(
            "UpdateContainerResources", container_id=id_, linux=pb.LinuxContainerResources(**wanted)
        )
        assert error.code == 3, wanted
    assert (await cri.status(id_)).state == pb.CONTAINER_RUNNING
