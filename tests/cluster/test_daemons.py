"""Daemons end by a signal, cleanly, however often they are asked."""

import signal
import subprocess
import sys

import pytest

PATIENCE = 60.0
DAEMON = """
import asyncio, signal, sys
from podwire.cluster.daemons import run_until_stopped

async def work():
    print("up", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        print("stopping", flush=True)

run_until_stopped(work(), (signal.SIGTERM, signal.SIGINT))
print("over", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_a_daemon_that_is_asked_again_while_its_process_ends_ends_well(number):
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as daemon:
        assert daemon.stdout.readline() == "up\n"
        daemon.send_signal(number)
        assert [daemon.stdout.readline() for _ in range(2)] == ["stopping\n", "over\n"]
        daemon.send_signal(number)
        daemon.send_signal(number)
        daemon.stdin.close()
        assert daemon.wait(PATIENCE) == 0


def test_an_exception_of_a_daemon_is_raised():
    failing = DAEMON.replace("await asyncio.Event().wait()", "raise OSError('no space')")
    done = subprocess.run([sys.executable, "-c", failing], capture_output=True, text=True, check=False, input="")
    assert done.returncode == 1
    assert "OSError: no space" in done.stderr
