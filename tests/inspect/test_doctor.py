"""`podwire doctor` on machines that lack something: it names what is missing, and what helps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from podwire.inspect.doctor import PACKAGES

PODWIRE = Path(sys.executable).with_name("podwire")
ROOT = Path(__file__).parents[2]

CHROOT = """
mount -t tmpfs chroot /mnt
for name in /*; do
    if [ -L "$name" ]; then cp -P "$name" /mnt$name
    elif [ -d "$name" ] && [ "$name" != /mnt ]; then mkdir /mnt$name; mount --rbind "$name" /mnt$name; fi
done
exec chroot /mnt "$@"
"""
"""Runs a command with all that the machine has, below another root directory."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give rights up")


def examine(*before: str) -> dict[str, dict[str, object]]:
    """The findings by their names; `before` are the words that take something away."""
    done = subprocess.run([*before, PODWIRE, "doctor", "-o", "json"], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return {finding["name"]: finding for finding in json.loads(done.stdout)}


@pytest.mark.parametrize(
    ("before", "name", "helps"),
    [
        pytest.param(
            ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all"),
            "capabilities",
            "--privileged",
            id="a container without privileges",
        ),
        pytest.param(("setarch", "x86_64", "--uname-2.6"), "kernel", "boot Linux 5.10 or newer", id="an old kernel"),
        pytest.param(
            ("unshare", "--mount", "sh", "-c", CHROOT, "sh"),
            "root directory",
            "systemd-nspawn",
            id="a chroot",
        ),
        pytest.param(
            ("unshare", "--mount", "sh", "-c", 'umount -R -l /sys/fs/cgroup; exec "$@"', "sh"),
            "cgroup controllers",
            "mount the cgroup file systems",
            id="no cgroups",
        ),
        pytest.param(
            ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64k t /var/lib; exec "$@"', "sh"),
            "disk space",
            "df -h",
            id="a full disk",
        ),
        pytest.param(("unshare", "--net"), "network", "podwire image import", id="no network"),
    ],
)
def test_a_check_that_fails_says_what_helps(before, name, helps):
    finding = examine(*before)[name]
    assert not finding["ok"]
    assert helps in finding["helps"]


def test_a_package_that_is_missing_is_named():
    """The modules that are looked for are those of the run-time requirements."""
    required = (ROOT / "requirements/runtime.in").read_text().split("\n")
    wanted = [line for line in required if line and "python_version" not in line]
    assert len(PACKAGES) == len(wanted)
