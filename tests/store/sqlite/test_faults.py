"""Disks that are full, fail or cannot be written."""

import os
import shutil
from pathlib import Path

import pytest

from podwire.store.sqlite import SqliteStore

HERE = Path(__file__).parent
APART = ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-rm")
"""A mount namespace of its own: what is mounted inside is gone with the process."""


def mounted(*commands: str) -> tuple[str, ...]:
    """A wrapper that runs a program after mount commands that nobody else sees."""
    return (*APART, "sh", "-ec", "; ".join([*commands, 'exec "$0" "$@"']))


def test_a_full_disk_is_reported_and_writes_resume_when_there_is_space(tmp_path, run_program):
    wrapper = mounted(f"mount -t tmpfs -o size=3m none {tmp_path}")
    child = run_program(HERE / "full_program.py", tmp_path, wrapper=wrapper)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors.decode()
    assert int(output) > 50


@pytest.mark.parametrize(
    "mount",
    [
        pytest.param("mount -t tmpfs -o size=8m none {disk}", id="tmpfs"),
        pytest.param(
            "truncate -s 16M {image}; mkfs.ext4 -q -m 0 {image}; mount -o loop {image} {disk}",
            id="ext4",
            marks=pytest.mark.skipif(
                os.geteuid() != 0 or shutil.which("mkfs.ext4") is None, reason="mounts an ext4 of its own"
            ),
        ),
    ],
)
def test_a_full_disk_keeps_nobody_from_deleting_nor_the_store_from_restarting(tmp_path, run_program, mount):
    disk, image = tmp_path / "disk", tmp_path / "image"
    disk.mkdir()
    wrapper = mounted(mount.format(disk=disk, image=image))
    child = run_program(HERE / "reserve_program.py", disk, wrapper=wrapper)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors.decode()
    assert int(output.split()[0]) > 5


@pytest.mark.parametrize("seed", [1, 5, 7, 9])
def test_everything_can_be_deleted_while_another_program_takes_every_free_byte(tmp_path, run_program, seed):
    wrapper = mounted(f"mount -t tmpfs -o size=8m none {tmp_path}")
    child = run_program(HERE / "filler_program.py", tmp_path, seed, wrapper=wrapper)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors.decode()
    assert int(output) > 20


@pytest.mark.parametrize("seed", [1, 2])
def test_large_objects_can_be_deleted_at_once_while_another_program_takes_every_free_byte(tmp_path, run_program, seed):
    wrapper = mounted(f"mount -t tmpfs -o size=64m none {tmp_path}")
    child = run_program(HERE / "filler_program.py", tmp_path, seed, "large", wrapper=wrapper)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors.decode()
    assert int(output) == 12


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mkfs.ext4") is None, reason="mounts an ext4 of its own")
@pytest.mark.parametrize("writes", [pytest.param(300, id="before a checkpoint"), pytest.param(5000, id="after some")])
def test_acknowledged_writes_survive_a_power_cut(tmp_path, run_program, writes):
    image, mountpoint = tmp_path / "image", tmp_path / "disk"
    mountpoint.mkdir()
    wrapper = mounted(f"truncate -s 256M {image}", f"mkfs.ext4 -q {image}", f"mount -o loop {image} {mountpoint}")
    child = run_program(HERE / "power_program.py", mountpoint, image, writes, wrapper=wrapper)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors.decode()
    assert int(output) >= writes


async def acknowledged_and_kept(directory: Path, output: bytes) -> tuple[list[int], int]:
    wrote = [int(line.split()[1]) for line in output.splitlines() if line.startswith(b"wrote")]
    store = await SqliteStore.open(directory)
    keys = {item.key for item in (await store.list("/registry/")).items}
    await store.create("/registry/pods/default/after", b"")
    await store.close()
    assert {f"/registry/pods/default/p{number}" for number in wrote} <= keys
    return wrote, len(keys)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace injects the error")
@pytest.mark.parametrize(
    ("path", "when", "wrote"),
    [
        pytest.param("store.db-wal", 1, [], id="the first sync of the log"),
        pytest.param("store.db-wal", 4, [0, 1], id="a later one"),
        pytest.param("store.db", 1, list(range(8)), id="the sync of a checkpoint, on the way out"),
    ],
)
async def test_a_failed_sync_ends_all_writing_and_is_never_tried_again(tmp_path, run_program, path, when, wrote):
    trace = tmp_path / "trace"
    data = tmp_path / "data"
    data.mkdir()
    await (await SqliteStore.open(data)).close()
    inject = f"inject=fdatasync:error=EIO:when={when}"
    wrapper = (
        "strace",
        "-f",
        "-y",
        "-qq",
        "-o",
        str(trace),
        "-P",
        str(data / path),
        "-e",
        "trace=fdatasync",
        "-e",
        inject,
    )
    child = run_program(HERE / "sync_program.py", data, 8, wrapper=wrapper)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors.decode()
    synced = trace.read_text().splitlines()
    assert "INJECTED" in synced[-1], "no sync of this file after the one that failed"
    refused = [line for line in output.decode().splitlines() if line.startswith("refused")]
    if path == "store.db-wal":
        assert len(refused) == 2
        assert all("StoreUnavailable" in line and "SQLITE_IOERR_FSYNC" in line for line in refused)
        assert output.decode().splitlines()[-2] == f"read {len(wrote)}"
    seen, _ = await acknowledged_and_kept(data, output.replace(b"wrote next\n", b""))
    assert seen == wrote


async def test_an_unknown_failure_ends_all_writing_but_not_reading(tmp_path, run_program):
    plan = "store.before-commit=3*off->error(the disk is on fire)"
    child = run_program(HERE / "sync_program.py", tmp_path, 8, PODWIRE_FAILPOINTS=plan)
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors.decode()
    lines = output.decode().splitlines()
    assert lines[3].startswith("refused StoreUnavailable")
    assert "the disk is on fire" in lines[4]
    assert lines[5] == "read 3"
    assert "the disk is on fire" in lines[6], "health checks report it"
    wrote, kept = await acknowledged_and_kept(tmp_path, output)
    assert (wrote, kept) == ([0, 1, 2], 3)


@pytest.mark.parametrize(
    ("mount", "reason"),
    [
        pytest.param(
            "mount --bind -o ro {0} {0}; mount -o remount,bind,ro {0}", "Read-only file system", id="read-only"
        ),
        pytest.param("mount -t tmpfs -o size=4k none {0}; head -c 4096 /dev/zero > {0}/x || true", "full", id="full"),
        pytest.param("rm -r {0}", "No such file or directory", id="missing"),
        pytest.param("rm -r {0}; touch {0}", "Not a directory", id="no directory"),
    ],
)
def test_a_directory_of_no_use_is_refused_with_its_path_and_the_reason(tmp_path, run_program, mount, reason):
    directory = tmp_path / "data"
    directory.mkdir()
    child = run_program(HERE / "sync_program.py", directory, 1, wrapper=mounted(mount.format(directory)))
    _, errors = child.communicate(timeout=60)
    last = errors.decode().splitlines()[-1]
    assert child.returncode == 1
    assert last.startswith(f"podwire.store.errors.CannotOpen: {directory}")
    assert reason in last
