"""The kubelet's file system is full: pods can be deleted, the kubelet can be restarted, and nothing is forgotten."""

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

import pytest

from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.fs.trees import remove_path
from tests.eventually import eventually_async


@pytest.fixture
def root():
    """A file system of its own, which a test can fill."""
    mounts = KernelMounts()
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as directory:
        mounts.mount("tmpfs", Path(directory), "tmpfs", ["size=512k", "nr_inodes=300"])
        try:
            yield Path(directory)
        finally:
            mounts.unmount(directory, lazily=True)


def fill(root):
    with contextlib.suppress(OSError), (root / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(os.urandom(4096))


def records(root):
    return sorted(path.name for path in (root / "claims").iterdir())


async def test_pods_with_claims_are_deleted_and_the_kubelet_restarts_on_a_full_disk(world, dra_driver, claims, root):
    driver = await asyncio.to_thread(dra_driver().start)
    await claims.make()
    one = await claims.pod("one")
    await world.running("one")
    two = await claims.pod("two", reserve=False)
    await claims.reserve("mine", one, two)
    await world.running("two")
    fill(root)
    await world.delete("one")
    assert driver.unprepared == []
    await world.stop()
    world.start()
    await eventually_async(lambda: world.kubelet.pod_workers.find("default", "two") is not None)
    await world.delete("two")
    assert driver.unprepared[-1:] == ["mine"]
    assert records(root) == []
    assert world.runtime.sandboxes == {}


def fill_inodes(root):
    (root / "many").mkdir()
    with contextlib.suppress(OSError):
        for number in range(1000):
            (root / f"many/{number}").touch()


@pytest.mark.parametrize(
    ("use_up", "ballast", "reason"),
    [(fill, "ballast", "Failed"), (fill_inodes, "many", "FailedCreatePodSandBox")],
    ids=["bytes", "inodes"],
)
async def test_a_pod_that_cannot_be_started_on_a_full_disk_says_so_and_starts_when_there_is_space(
    world, root, caplog, use_up, ballast, reason
):
    await world.make("first")
    await world.running("first")
    use_up(root)
    await world.make()
    assert "o space left" in await world.event(reason, "o space left")
    assert "cannot sync pod: unexpected error" not in {record.message for record in caplog.records}
    remove_path(root / ballast)
    await world.running()
