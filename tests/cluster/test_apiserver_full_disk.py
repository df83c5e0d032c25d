"""An API server whose disk another program fills."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "full_disk_program.py"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small tmpfs, in a mount namespace of its own")
def test_an_api_server_on_a_full_disk_reads_deletes_and_restarts(tmp_path):
    mount = f'mount -t tmpfs -o size=24m none {tmp_path}; exec "$0" "$@"'
    command = ["unshare", "-m", "sh", "-ec", mount, sys.executable, str(PROGRAM), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]
