"""A container does what it likes with the files that the kubelet gave it; the kubelet stays small and goes on."""

import os
import resource

import pytest

from podwire.kubelet.pods import termination_message
from podwire.linux.fs.trees import remove_path
from podwire.objects.containers import Container

GIBI = 1 << 30


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def restarted(pod):
    return pod and pod["status"]["containerStatuses"][0]["restartCount"] == 1 and pod["status"]["phase"] == "Running"


async def restart(world, world_root, attack):
    await world.make()
    uid = (await world.running())["metadata"]["uid"]
    hosts = world_root / "pods" / uid / "etc-hosts"
    original = hosts.read_text()
    attack(hosts)
    world.runtime.ends("c", 1)
    await world.until(restarted)
    return original, hosts


async def test_a_sparse_etc_hosts_does_not_fill_the_memory_of_the_kubelet(world, root):
    before = peak()
    original, hosts = await restart(world, root, lambda hosts: os.truncate(hosts, 2 * GIBI))
    assert peak() - before < GIBI // 2
    assert hosts.read_text() == original


async def test_an_etc_hosts_that_is_not_utf8_does_not_keep_a_container_from_restarting(world, root):
    original, hosts = await restart(world, root, lambda hosts: hosts.write_bytes(b"\xff\xfe\x00"))
    assert hosts.read_text() == original


async def test_plugins_register_beside_directories_deeper_than_a_recursion(world, root):
    """The pod of a plugin can write to the directory of registration sockets."""
    await world.stop()
    (root / "plugins_registry").mkdir(exist_ok=True)
    nest(root / "plugins_registry")
    try:
        world.start()
        await world.make()
        await world.running()
        assert not world.task.done()
    finally:
        remove_path(root / "plugins_registry/d")  # pytest cannot


@pytest.mark.parametrize("trap", ["symlink", "fifo"])
def test_a_trap_in_place_of_the_termination_log_is_not_read(tmp_path, trap):
    secret, file = tmp_path / "secret", tmp_path / "message"
    secret.write_text("of the node")
    file.symlink_to(secret) if trap == "symlink" else os.mkfifo(file)
    fallback = Container(name="c", termination_message_policy="FallbackToLogsOnError")
    assert termination_message.read(fallback, file, str(file), 1) == ""


def test_the_containers_of_a_pod_share_twelve_kibibytes_of_messages(tmp_path):
    file = tmp_path / "message"
    file.write_bytes(b"x" * 100_000)
    assert len(termination_message.read(Container(name="c"), file, "", 1)) == 4096
    assert len(termination_message.read(Container(name="c"), file, "", 1, containers=6)) == 2048
    file.write_bytes(b"\xff" * 100_000)
    assert len(termination_message.read(Container(name="c"), file, "", 1).encode()) <= 4096


def nest(directory):
    here = os.open(directory, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


async def test_a_pod_with_directories_deeper_than_a_recursion_is_deleted(world, root):
    await world.make(volumes=[{"name": "v", "emptyDir": {}}])
    uid = (await world.running())["metadata"]["uid"]
    nest(root / "pods" / uid / "volumes/kubernetes.io~empty-dir/v")
    await world.delete()
    assert list((root / "pods").iterdir()) == []
