"""Of several instances one works at a time, and one answers."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from podwire.dradriver.instances import AnswerLock, Busy, InstanceLimits, InstanceLock
from tests.eventually import eventually_async

PATIENCE = 30.0


async def test_calls_of_one_instance_share_its_lock(tmp_path):
    lock = InstanceLock(tmp_path / "dir/serialize.lock")
    async with asyncio.timeout(PATIENCE), lock.held(), lock.held():
        pass
    async with asyncio.timeout(PATIENCE), lock.held():
        pass


async def test_another_instance_waits_until_the_last_call_has_ended(tmp_path):
    mine, other = InstanceLock(tmp_path / "lock"), InstanceLock(tmp_path / "lock")
    async with asyncio.timeout(PATIENCE):
        async with mine.held():
            async with mine.held():
                pass
            with pytest.raises(Busy):
                async with other.held(patience=0):
                    pass
        async with other.held():
            pass


async def test_caller_that_gives_up_leaves_no_lock_behind(tmp_path):
    mine, other, third = (InstanceLock(tmp_path / "lock") for _ in range(3))

    async def follow():
        async with other.held():
            pass

    async with asyncio.timeout(PATIENCE):
        async with mine.held():
            following = asyncio.ensure_future(follow())
            await eventually_async(lambda: other._acquiring is not None)
            following.cancel()
            await asyncio.wait([following])
        async with third.held():
            pass


def test_one_instance_speaks_and_another_after_it(tmp_path):
    first, second = AnswerLock(tmp_path / "voice"), AnswerLock(tmp_path / "voice")
    assert (first.is_held(), second.is_held(), first.is_held()) == (True, False, True)
    first.release()
    assert (second.is_held(), first.is_held()) == (True, False)
    second.release()


HOLDER = """
import asyncio, sys
from pathlib import Path
from podwire.dradriver.instances import InstanceLock

async def work():
    async with InstanceLock(Path(sys.argv[1]), "p-other").held():
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(work())
"""


@contextlib.contextmanager
def another_instance(lock):
    """A process that has the lock until its end."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as it:
        try:
            assert it.stdout.readline() == b"held\n"
            yield it
        finally:
            it.kill()


async def test_busy_error_names_the_holder_and_that_it_is_stopped(tmp_path):
    path = tmp_path / "serialize.lock"
    with another_instance(path) as other:
        other.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
        lock = InstanceLock(path)
        for _ in range(3):  # nobody is used up by waiting
            with pytest.raises(Busy) as busy:
                async with lock.held(patience=0.05):
                    pass
        result = (
            f"another instance of the driver, process {other.pid} of pod p-other, which is stopped and goes on with"
        )
        assert result in str(busy.value)
        assert str(path) in str(busy.value)
        assert sum(item.name == "instance lock" for item in threading.enumerate()) == 1
        other.send_signal(signal.SIGCONT)
        other.stdin.close()
        async with asyncio.timeout(PATIENCE), lock.held():
            assert path.read_text().startswith(f"{os.getpid()} - ")


async def test_waiting_names_the_holder_until_the_lock_is_acquired(tmp_path, caplog):
    mine, other = InstanceLock(tmp_path / "lock"), InstanceLock(tmp_path / "lock", limits=InstanceLimits(report=0.0))
    caplog.set_level("INFO")
    async with asyncio.timeout(PATIENCE):
        async with mine.held():
            with pytest.raises(Busy):
                async with other.held(patience=0.5):
                    pass
            assert f"process {os.getpid()}" in other.waiting
        async with other.held():
            assert other.waiting == ""
    result = [record.message for record in caplog.records if record.name == "podwire.dradriver"]
    assert result == ["waiting for another instance", "acquired instance lock after waiting"]


async def test_lock_without_a_holder_name_is_respected(tmp_path):
    (tmp_path / "lock").write_text("?")
    assert InstanceLock(tmp_path / "lock").holder() == f"another instance of the driver holds {tmp_path / 'lock'}"
