"""Killed at any step, out of space, or in several processes at once: no half image is ever there."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from podwire.failpoints import KNOWN
from podwire.runtime.images import Images

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other owners")

PROGRAM = Path(__file__).with_name("import_program.py")
STEPS = sorted(item for item in KNOWN if item.startswith("images."))


def run(store: Path, *archives: Path, wrapper: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess:
    command = [*wrapper, sys.executable, str(PROGRAM), str(store), *map(str, archives)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env})


@pytest.fixture
def archives(oci, tmp_path) -> dict[str, Path]:
    base = oci.tar_of(*(oci.entry(f"base/{number}", b"x" * 3000) for number in range(20)))
    made = {}
    for name in ("kept", "removed", "taken"):
        image = oci.Made(base, oci.tar_of(oci.entry(name, b"y" * 5000)), name=f"example.test/{name}:1")
        made[name] = oci.write_directory(tmp_path / name, image.files())
    return made


def check(store: Path) -> set[str]:
    """Files are complete after a crash; returns the short names of the images."""
    images = Images(store)
    assert images.problems() == []
    assert list((store / "staging").iterdir()) == []
    needed = set()
    for image in images.list():
        paths = images.rootfs_layers(image)
        needed |= {path.parent.name for path in paths}
        assert len(list((paths[-1] / "base").iterdir())) == 20
        assert all((paths[-1] / "base" / str(number)).stat().st_size == 3000 for number in range(20))
    assert {path.name for path in (store / "snapshots").iterdir()} == needed
    assert len(list((store / "blobs" / "sha256").iterdir())) == 2 * len(images.list())
    found = {name.split("/")[1].split(":")[0] for image in images.list() for name in image.names}
    images.close()
    return found


@pytest.mark.parametrize("action", ["kill", "1*off->kill", "3*off->kill", "error(disk on fire)"])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_leaves_complete_images_only(tmp_path, archives, step, action):
    store = tmp_path / "store"
    images = Images(store)
    for name in ("kept", "removed"):
        images.import_archive(archives[name])
    done = run(store, archives["taken"], PODWIRE_FAILPOINTS=f"{step}={action}")
    left = check(store)
    assert left - {"removed", "taken"} == {"kept"}
    if done.returncode == 0:
        assert left == {"kept", "taken"}
    images.import_archive(archives["taken"])
    images.remove("example.test/removed:1")
    images.close()
    assert check(store) == {"kept", "taken"}


def test_every_step_can_be_hit(tmp_path, archives):
    for step in STEPS:
        assert run(tmp_path / step, archives["removed"], PODWIRE_FAILPOINTS=f"{step}=kill").returncode == -9, step


@pytest.mark.parametrize(
    "limits",
    ["size=40k", "size=88k", "size=96k", "size=100k", "size=104k", "size=4m,nr_inodes=25", "size=4m,nr_inodes=38"],
)
def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path, archives, limits):
    store = tmp_path / "disk" / "store"
    store.parent.mkdir()
    script = f"""
        mount -t tmpfs -o {limits} none {store.parent}
        "$@" && exit 9
        test $? = 3 || exit 8
        find {store} -type f ! -name lock | grep . && exit 7
        find {store}/staging -mindepth 1 | grep . && exit 6
        mount -o remount,size=8m,nr_inodes=0 {store.parent}
        "$@"
        """
    done = run(store, archives["kept"], wrapper=("unshare", "-m", "sh", "-uc", script, "sh"))
    assert done.returncode == 0, done.stderr + done.stdout


def test_images_with_a_layer_in_common_can_be_taken_in_at_once(tmp_path, archives):
    store = tmp_path / "store"
    images = Images(store)
    failures: list[BaseException] = []

    def take(path: Path) -> None:
        try:
            images.import_archive(path)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test tells it
            failures.append(error)

    threads = [threading.Thread(target=take, args=(path,)) for path in [*archives.values()] * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    images.close()
    assert failures == []
    assert check(store) == {"kept", "removed", "taken"}


def test_opening_the_store_leaves_the_stage_of_another_process(tmp_path, archives):
    store = tmp_path / "store"
    go = tmp_path / "go"
    command = [sys.executable, str(PROGRAM), str(store), str(archives["taken"])]
    env = {**os.environ, "PODWIRE_FAILPOINTS": f"images.unpacked=hold({go})"}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as child:
        try:
            while not (tmp_path / "go.held").exists():
                assert child.poll() is None
                time.sleep(0.005)
            assert list(store.glob("staging/work-*/*/fs/taken"))
            other = Images(store)
            other.import_archive(archives["kept"])
            other.remove("example.test/kept:1")
            other.close()
        finally:
            go.touch()
        assert child.wait(timeout=30) == 0
    assert check(store) == {"taken"}
