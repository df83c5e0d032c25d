"""Effects of a failpoint on the program that passes it."""

import signal
import subprocess
import sys
import time

PROGRAM = "from podwire.failpoints import failpoint; failpoint('here'); print('went on')"


def passed(setting):
    words = [sys.executable, "-c", PROGRAM]
    return subprocess.run(
        words, env={"PODWIRE_FAILPOINTS": setting}, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_program_that_is_killed_dies_every_time():
    assert [passed("here=kill").returncode for _ in range(2)] == [-signal.SIGKILL] * 2


def test_kill_with_a_file_kills_once(tmp_path):
    died = tmp_path / "died"
    assert passed(f"here=kill({died})").returncode == -signal.SIGKILL
    assert died.exists()
    again = passed(f"here=kill({died})")
    assert (again.returncode, again.stdout) == (0, "went on\n")


def test_hold_creates_its_marker_and_continues_when_the_file_exists(tmp_path):
    gate, held = tmp_path / "gate", tmp_path / "gate.held"
    words = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        words, env={"PODWIRE_FAILPOINTS": f"here=hold({gate})"}, stdout=subprocess.PIPE, text=True
    ) as process:
        until = time.monotonic() + 60
        while not held.exists():
            assert time.monotonic() < until
            time.sleep(0.005)
        assert process.poll() is None
        gate.touch()
        assert process.communicate(timeout=60) == ("went on\n", None)
    assert process.returncode == 0
