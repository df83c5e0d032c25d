"""What a failpoint can do to the program that passes it."""

import signal
import subprocess
import sys

PROGRAM = "from podwire.failpoints import failpoint; failpoint('here'); print('went on')"


def passed(setting):
    words = [sys.executable, "-c", PROGRAM]
    return subprocess.run(
        words, env={"PODWIRE_FAILPOINTS": setting}, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_program_that_is_killed_dies_every_time():
    assert [passed("here=kill").returncode for _ in range(2)] == [-signal.SIGKILL] * 2


def test_with_a_file_it_dies_once_and_the_file_tells_that_it_did(tmp_path):
    died = tmp_path / "died"
    assert passed(f"here=kill({died})").returncode == -signal.SIGKILL
    assert died.exists()
    again = passed(f"here=kill({died})")
    assert (again.returncode, again.stdout) == (0, "went on\n")
