"""A real node evicts: pods above their limits of local storage, and the largest pod when its disk is full."""

import pytest

WRITE = "dd if=/dev/zero of={0} bs=1M count={1} 2>/dev/null; sleep 3600"


@pytest.fixture(scope="module")
def node(running, template):
    """Its kubelet has a disk of 64 MiB, of which half must be free."""

    def prepare(made):
        made.space.output("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", "/mnt")

    flags = ("--root-dir", "/mnt/kubelet", "--eviction-hard", "nodefs.available<50%")
    with running(template, *flags, "--eviction-pressure-transition-period", 3, prepare=prepare) as made:
        yield made


def volume(path, **source):
    mounts = {"volumeMounts": [{"name": "v", "mountPath": path}]}
    return mounts, [{"name": "v", "emptyDir": source}]


def evicted(node, name):
    node.eventually(lambda: node.get(f"pod {name}")["status"].get("reason") == "Evicted")
    status = node.get(f"pod {name}")["status"]
    assert status["phase"] == "Failed"
    assert node.event_message(name, "Evicted") == status["message"]
    return status["message"]


def test_an_empty_dir_above_its_size_limit(node, pod, container, name):
    mounts, volumes = volume("/v", sizeLimit="1Mi")
    node.make(pod(name, containers=[container("c", WRITE.format("/v/file", 4), **mounts)], volumes=volumes))
    assert evicted(node, name) == 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '


@pytest.mark.parametrize("end", ["sleep 3600", "exit 1"], ids=["while it runs", "by containers that crash"])
def test_a_root_file_system_above_the_limit_of_its_pod(node, pod, container, name, end):
    limits = {"resources": {"limits": {"ephemeral-storage": "2Mi"}}}
    script = f"dd if=/dev/zero of=/file bs=1M count=4 2>/dev/null; {end}"
    node.make(pod(name, containers=[container("c", script, **limits)]))
    assert evicted(node, name) == "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "


def test_an_empty_dir_in_memory_is_limited_by_the_kernel(node, pod, container, name):
    mounts, volumes = volume("/v", sizeLimit="1Mi", medium="Memory")
    script = "dd if=/dev/zero of=/v/file bs=1M count=4 || echo full; sleep 3600"
    node.make(pod(name, containers=[container("c", script, **mounts)], volumes=volumes))
    node.wait(f"pod/{name}", "condition=Ready")
    node.eventually(lambda: "full\n" in node(f"logs {name}"))


def test_what_finished_pods_left_goes_before_a_pod_is_evicted(node, pod, container, name):
    mounts, volumes = volume("/v")
    done, filler = f"{name}-done", "/mnt/filler"
    script = "dd if=/dev/zero of=/v/file bs=1M count=20 2>/dev/null"
    node.make(pod(name))
    node.wait(f"pod/{name}", "condition=Ready")
    node.make(pod(done, containers=[container("c", script, **mounts)], volumes=volumes, restartPolicy="Never"))
    node.eventually(lambda: node.get(f"pod {done}")["status"]["phase"] == "Succeeded")
    uid = node.get(f"pod {done}")["metadata"]["uid"]
    assert uid in node.space.output("ls", "/mnt/kubelet/pods")
    node.space.output("dd", "if=/dev/zero", f"of={filler}", "bs=1M", "count=20")
    try:
        node.eventually(lambda: uid not in node.space.output("ls", "/mnt/kubelet/pods"))
        node.wait("node/node", "condition=DiskPressure=False")
        assert node.get(f"pod {name}")["status"]["phase"] == "Running"
        assert node.get(f"pod {done}")["status"]["phase"] == "Succeeded"
    finally:
        node.space.output("rm", filler)


def test_the_largest_pod_goes_when_the_disk_of_the_node_is_full(node, pod, container, name):
    mounts, volumes = volume("/v")
    small, large = f"{name}-small", f"{name}-large"
    node.make(pod(small, containers=[container("c", WRITE.format("/v/file", 2), **mounts)], volumes=volumes))
    node.wait(f"pod/{small}", "condition=Ready")
    node.make(pod(large, containers=[container("c", WRITE.format("/v/file", 40), **mounts)], volumes=volumes))
    message = evicted(node, large)
    assert message.startswith("The node was low on resource: ephemeral-storage. Threshold quantity: 32Mi, available: ")
    assert node.event_message("node", "NodeHasDiskPressure") == "Node node status is now: NodeHasDiskPressure"
    assert node.event_message("node", "EvictionThresholdMet") == "Attempting to reclaim ephemeral-storage"
    assert node.get(f"pod {small}")["status"]["phase"] == "Running"
    node.wait("node/node", "condition=DiskPressure=False")
    node.make(pod(f"{name}-later"))
    node.wait(f"pod/{name}-later", "condition=Ready")
