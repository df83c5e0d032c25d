"""File locks between processes."""

import os
import threading
import time

import pytest

from podwire.durable.locks import LockHeld, describe_holder, holder_pid, lock_byte, lock_directory, lock_file
from podwire.linux import errors


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lock"


def test_a_lock_excludes_others_and_names_its_holder(path):
    with lock_file(path, name="kubelet"):
        assert (holder_pid(path), describe_holder(path)) == (os.getpid(), f"process {os.getpid()} (kubelet)")
        with pytest.raises(LockHeld, match=rf"lock is locked by process {os.getpid()} \(kubelet\)$"):
            lock_file(path)
        with pytest.raises(LockHeld, match=r"waited for 0\.02 s$"):
            lock_file(path, wait=0.02)
    lock_file(path).close()


def test_shared_locks_exclude_exclusive_ones_only(path):
    with lock_file(path, shared=True), lock_file(path, shared=True), pytest.raises(LockHeld, match="another process"):
        lock_file(path)


@pytest.mark.parametrize("wait", [10.0, None])
def test_waiting_ends_when_the_holder_releases(path, wait):
    held = lock_file(path)
    threading.Timer(0.05, held.close).start()
    began = time.monotonic()
    lock_file(path, wait=wait).close()
    assert 0.03 < time.monotonic() - began < 5


def test_a_lock_file_that_was_removed_meanwhile_is_not_taken(path):
    held = lock_file(path)
    taken = []
    thread = threading.Thread(target=lambda: taken.append(lock_file(path, wait=10)))
    thread.start()
    time.sleep(0.03)
    path.unlink()
    held.close()
    thread.join()
    with taken[0], pytest.raises(LockHeld):
        lock_file(path)


def test_a_killed_holder_releases_and_a_forked_one_holds(path):
    held = lock_file(path)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        held.write_holder("child")
        os.write(writing, b"x")
        time.sleep(60)
        os._exit(0)
    os.read(reading, 1)
    held.close()
    with pytest.raises(LockHeld, match=rf"process {pid} \(child\)"):
        lock_file(path)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    lock_file(path).close()
    for item in (reading, writing):
        os.close(item)


def test_a_directory_can_be_locked(tmp_path):
    with lock_directory(tmp_path), pytest.raises(LockHeld, match="another process"):
        lock_directory(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_errors_name_the_path(tmp_path):
    with pytest.raises(errors.NoSuchPath, match=r"lock .*nowhere/lock"):
        lock_file(tmp_path / "nowhere" / "lock")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(errors.LinuxError, match="link"):
        lock_file(tmp_path / "link")
    assert holder_pid(tmp_path / "nowhere") == 0


def test_bytes_of_one_file_are_locks_of_their_own(tmp_path):
    path = tmp_path / "lock"
    with lock_byte(path, 7), lock_byte(path, 8):
        with pytest.raises(LockHeld):
            lock_byte(path, 7)
        with pytest.raises(LockHeld, match=r"waited for 0.05 s"):
            lock_byte(path, 8, wait=0.05)
    lock_byte(path, 7).close()


def test_a_byte_in_a_missing_directory_is_an_error(tmp_path):
    with pytest.raises(errors.NoSuchPath):
        lock_byte(tmp_path / "missing" / "lock", 1)
