"""The device cgroup of both versions, tried on the groups of this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from podwire.linux.cgroups.devices import DeviceRule, set_version_1, set_version_2
from podwire.linux.cgroups.groups import KernelCgroups, find_trees

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

TRY = """
import os, sys
open(sys.argv[1], "w").write("0")
for path, flags in (("null", os.O_RDWR), ("zero", os.O_RDONLY), ("zero", os.O_RDWR), ("full", os.O_RDONLY)):
    try:
        os.close(os.open(f"/dev/{path}", flags))
        print("yes")
    except PermissionError:
        print("no")
os.mknod(sys.argv[2], 0o20600, os.makedev(1, 7))
"""
DENY, ALLOW = DeviceRule(False), DeviceRule(True)
NULL, ZERO_READ, MKNOD = (
    DeviceRule(True, "c", 1, 3),
    DeviceRule(True, "c", 1, 5, "r"),
    DeviceRule(True, "c", access="m"),
)


@pytest.fixture(params=[1, 2])
def group(request):
    version = request.param
    if version == 1:
        tree = next((tree for tree in find_trees() if tree.version == 1 and "devices" in tree.controllers), None)
    else:
        tree = next((tree for tree in find_trees() if tree.version == 2), None)
    if tree is None:
        pytest.skip(f"no hierarchy of version {version} that limits devices is mounted")
    directory = Path(tree.mount, f"podwire-test-devices-{os.getpid()}")
    directory.mkdir()
    yield str(directory), set_version_1 if version == 1 else set_version_2
    directory.rmdir()


def tried(directory, tmp_path):
    words = [sys.executable, "-I", "-c", TRY, f"{directory}/cgroup.procs", str(tmp_path / "node")]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("rules", "opened"),
    [
        pytest.param([DENY, MKNOD, NULL, ZERO_READ], ["yes", "yes", "no", "no"], id="exceptions of a denial"),
        pytest.param([DENY, MKNOD, NULL, ZERO_READ, ALLOW], ["yes"] * 4, id="all again"),
        pytest.param([ALLOW, DeviceRule(False, "c", 1, 5, "w")], ["yes", "yes", "no", "yes"], id="denied writing"),
        pytest.param(
            [DENY, MKNOD, NULL, ZERO_READ, DeviceRule(True, "c", 1, 5, "w")],
            ["yes", "yes", "yes", "no"],
            id="access adds up",
        ),
        pytest.param([DENY, MKNOD, NULL, DeviceRule(False, "c", 1, 3)], ["no"] * 4, id="an exception taken back"),
        pytest.param([DENY, DeviceRule(True, "c", 1)], ["yes"] * 4, id="all minors of a major"),
        pytest.param([DENY, MKNOD, DeviceRule(True, "b")], ["no"] * 4, id="another kind"),
    ],
)
def test_the_processes_of_a_group_open_what_its_rules_allow(group, tmp_path, rules, opened):
    directory, limit = group
    limit(directory, rules)
    done = tried(directory, tmp_path)
    assert done.stdout.split() == opened, done.stderr
    assert done.returncode == 0, done.stderr


def test_a_node_cannot_be_made_without_access_to_mknod(group, tmp_path):
    directory, limit = group
    limit(directory, [DENY, NULL])
    assert "PermissionError" in tried(directory, tmp_path).stderr


def test_a_machine_without_any_hierarchy_does_not_limit_devices():
    assert not KernelCgroups(trees=[]).limits_devices
    assert KernelCgroups().limits_devices
