"""An API server whose disk another program fills."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "full_disk_program.py"


def run_program(restart: str, mebibytes: int, directory: Path) -> None:
    mount = f'mount -t tmpfs -o size={mebibytes}m none {directory}; exec "$0" "$@"'
    command = ["unshare", "-m", "sh", "-ec", mount, sys.executable, str(PROGRAM), restart, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small tmpfs, in a mount namespace of its own")
@pytest.mark.parametrize(("restart", "mebibytes"), [("stopped", 24), ("killed", 60)])
def test_an_api_server_on_a_full_disk_reads_deletes_and_restarts(tmp_path, restart, mebibytes):
    run_program(restart, mebibytes, tmp_path)
