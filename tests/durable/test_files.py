"""Atomic file operations."""

import os
import re
import subprocess
import sys
import threading

import pytest

from podwire.durable import files
from podwire.durable.files import remove_durably, replace_file, sweep, why_unwritable, write_durably
from podwire.linux import errors


def test_write_replaces_a_file_and_sets_its_mode(tmp_path):
    path = tmp_path / "record"
    before = os.umask(0o077)
    try:
        write_durably(path, b"one", 0o644)
    finally:
        os.umask(before)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"one", 0o644)
    write_durably(str(path), b"two")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"two", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_durable_write_fsyncs_file_renames_then_fsyncs_directory(tmp_path):
    """Seen from outside, by strace."""
    script = f"from podwire.durable.files import write_durably; write_durably({str(tmp_path / 'record')!r}, b'x')"
    log = tmp_path / "log"
    calls = "fsync,rename,renameat,renameat2,openat,write"
    subprocess.run(["strace", "-o", log, "-e", f"trace={calls}", sys.executable, "-c", script], check=True)
    lines = [line for line in log.read_text().splitlines() if re.match(r"\w+\(.*= \d", line)]
    (first,) = [number for number, line in enumerate(lines) if ".tmp" in line and "openat" in line]
    names = [re.search(r"(\w+)\(", line)[1] for line in lines[first:]]
    assert [name.removesuffix("at") for name in names[:6]] == ["open", "write", "fsync", "rename", "open", "fsync"]
    assert f'"{tmp_path}", O_RDONLY' in lines[first + 4]


def test_failed_write_leaves_the_old_file_and_no_temporary_file(tmp_path):
    path = tmp_path / "taken"
    path.mkdir()
    (path / "child").touch()
    with pytest.raises(errors.LinuxError, match=f"write {path}"):
        write_durably(path, b"x")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(errors.NoSuchPath):
        write_durably(tmp_path / "nowhere" / "file", b"x")


def test_concurrent_writers_leave_one_whole_text(tmp_path):
    path = tmp_path / "record"
    texts = [bytes([65 + number]) * 50_000 for number in range(6)]
    threads = [threading.Thread(target=write_durably, args=(path, text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_sweep_removes_temporary_files_only(tmp_path):
    (tmp_path / ".record.1-0.tmp").touch()
    (tmp_path / "record").touch()
    (tmp_path / ".hidden").touch()
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "record"]


def test_remove_is_idempotent(tmp_path):
    path = tmp_path / "record"
    path.touch()
    remove_durably(path)
    remove_durably(path)
    assert not path.exists()
    with pytest.raises(errors.LinuxError):
        remove_durably(tmp_path)


def test_replace_without_fsync_is_atomic(tmp_path):
    path = tmp_path / "state"
    for content in (b"one", b"two"):
        replace_file(path, content, mode=0o644)
        assert (path.read_bytes(), path.stat().st_mode & 0o777) == (content, 0o644)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    with pytest.raises(errors.NoSuchPath):
        replace_file(tmp_path / "nowhere" / "state", b"")


def test_replace_does_not_replace_a_directory(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "kept").touch()
    with pytest.raises(errors.LinuxError, match="Is a directory"):
        replace_file(tmp_path / "state", b"one")
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["state", "state/kept"]


def test_a_directory_without_a_writable_parent_is_explained(tmp_path):
    (tmp_path / "file").touch()
    assert why_unwritable(str(tmp_path / "new" / "deeper")) == ""
    assert why_unwritable(str(tmp_path / "file" / "new")) == f"{tmp_path}/file is not a directory"


def test_a_writer_of_another_pid_namespace_with_the_same_number_is_not_in_the_way(tmp_path):
    """Nodes have PID namespaces of their own and share the image store; a killed writer leaves its file, too."""
    used = next(files._numbers)
    for number in range(used + 1, used + 20):
        (tmp_path / f".state.{os.getpid()}-{number}.tmp").touch()
    write_durably(tmp_path / "state", b"one")
    assert (tmp_path / "state").read_bytes() == b"one"


def test_full_disk_leaves_the_old_file(on_small_disk):
    def work(small):
        write_durably(small / "record", b"old")
        with pytest.raises(errors.OutOfResources):
            write_durably(small / "record", b"x" * 100_000)
        return (small / "record").read_bytes(), [path.name for path in small.iterdir()]

    assert on_small_disk(work) == (b"old", ["record"])
