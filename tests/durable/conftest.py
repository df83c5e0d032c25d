"""Children that can be killed at any step, and disks that are full."""

import os
import pickle
import signal
from collections.abc import Callable
from typing import Any

import pytest

from podwire.linux import syscalls

STEPS = ("open", "write", "fsync", "rename", "unlink", "link", "mkdir", "rmdir", "ftruncate")
PRIVATE = 16384 | 1 << 18


def in_child(work: Callable[[], Any], *, kill_before: int = 0) -> tuple[bool, Any]:
    """Run work in a forked child, killed before its nth step on the disk: whether it came to its end, and result."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if kill_before:
                kill_before_step(kill_before)
            os.close(reading)
            result: Any = work()
        except BaseException as error:  # noqa: BLE001 - it is reported to the parent
            result = error
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    ended = os.WIFEXITED(status)
    return ended, pickle.loads(data) if ended else None


def kill_before_step(number: int) -> None:
    """Count all calls that change the disk, and die before one."""
    left = number

    def counted(call):
        def wrapper(*args, **kwargs):
            nonlocal left
            if call is not original_open or args[1] & (os.O_CREAT | os.O_WRONLY):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapper

    original_open = os.open
    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    syscalls.exchange = counted(syscalls.exchange)


@pytest.fixture
def on_small_disk(tmp_path):
    """Runs work in a child that sees a disk of 64 KiB at the path that it is handed."""
    small = tmp_path / "small"
    small.mkdir()

    def run(work):
        def inside():
            syscalls.unshare(syscalls.NEWNS)
            syscalls.mount(None, "/", None, PRIVATE, None)
            syscalls.mount("small", str(small), "tmpfs", 0, "size=65536")
            return work(small)

        ended, result = in_child(inside)
        assert ended
        if isinstance(result, BaseException):
            raise result
        return result

    return run
