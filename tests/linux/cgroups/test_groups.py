"""Control groups: their files, and limits, use and killing of real processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.linux import errors
from podwire.linux.cgroups import layout
from podwire.linux.cgroups.groups import KernelCgroups, warm_up
from podwire.linux.cgroups.layout import CONTROLLERS, Setting, Tree, settings, tree_by_controller, weight
from podwire.linux.cgroups.values import Limits
from podwire.linux.fs.mounts import parse_mountinfo

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:32 / /elsewhere/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
ALL = Limits(
    cpu_shares=1024,
    cpu_quota=50_000,
    cpu_period=100_000,
    memory=64 << 20,
    pids=32,
    cpus="0",
    mems="0",
    hugepages=(("2MB", 0),),
)


@pytest.fixture
def spawned():
    """Starts shells that sleep; whatever is left is killed and reaped."""
    children = []

    def start(script="exec sleep 60"):
        children.append(subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.wait()


def entered(cgroups, path, child_script):
    """A shell that waits outside until it is in the group, so that all its children are."""
    child = subprocess.Popen(["sh", "-c", f"read go; {child_script}"], stdin=subprocess.PIPE)
    cgroups.enter(path, child.pid)
    child.stdin.write(b"go\n")
    child.stdin.close()
    return child


def test_create_makes_parents_and_list_finds_groups(kernel, group):
    cgroups = kernel.cgroups
    cgroups.create(f"{group}/pod-1/web")
    cgroups.create(f"{group}/pod-1/web")
    cgroups.create(f"{group}/pod-2")
    assert cgroups.below(group) == [f"{group}/pod-1", f"{group}/pod-1/web", f"{group}/pod-2"]
    cgroups.remove(f"{group}/pod-1")
    assert cgroups.below(group) == [f"{group}/pod-2"]
    cgroups.remove(f"{group}/pod-1")
    assert cgroups.below("nobody-has-this") == []


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/../b", "."])
def test_a_group_stays_below_the_root(kernel, path):
    with pytest.raises(errors.PathEscapes):
        kernel.cgroups.create(path)


def test_processes_enter_and_are_killed(kernel, group, spawned):
    cgroups = kernel.cgroups
    cgroups.create(f"{group}/web")
    one, two = spawned(), spawned()
    cgroups.enter(f"{group}/web", one.pid)
    cgroups.enter(f"{group}/web", two.pid)
    assert cgroups.pids(f"{group}/web") == cgroups.pids(group) == sorted([one.pid, two.pid])
    assert cgroups.usage(f"{group}/web").pids == 2
    with pytest.raises(errors.Busy, match="remove the cgroup"):
        cgroups.remove(group)
    cgroups.kill(group)
    assert cgroups.pids(group) == []
    cgroups.remove(group)


def test_end_removes_empty_groups_groups_with_processes_and_groups_below(kernel, group, spawned):
    cgroups = kernel.cgroups
    cgroups.end(group)
    cgroups.create(group)
    cgroups.end(group)
    cgroups.create(f"{group}/pod/web/nested")
    child = spawned()
    cgroups.enter(f"{group}/pod/web/nested", child.pid)
    cgroups.end(group)
    assert child.wait(20) == -signal.SIGKILL
    assert not any(Path(tree.mount, group).exists() for tree in cgroups.trees)


def test_end_kills_a_process_that_is_in_some_hierarchies_only(kernel, group, spawned):
    cgroups = kernel.cgroups
    if len(cgroups.trees) == 1:
        pytest.skip("this kernel has a single cgroup hierarchy")
    cgroups.create(group)
    child = spawned()
    Path(cgroups.procs_files(group)[1]).write_text(str(child.pid))
    cgroups.end(group)
    assert child.wait(20) == -signal.SIGKILL
    assert not any(Path(tree.mount, group).exists() for tree in cgroups.trees)


def test_kill_of_an_empty_or_missing_group_succeeds(kernel, group):
    kernel.cgroups.kill(group)
    kernel.cgroups.create(group)
    kernel.cgroups.kill(group)


def test_missing_group_is_no_such_cgroup(kernel, group, spawned):
    child = spawned()
    for call in (
        lambda: kernel.cgroups.enter(group, child.pid),
        lambda: kernel.cgroups.usage(group),
        lambda: kernel.cgroups.limit(group, Limits(pids=5)),
    ):
        with pytest.raises(errors.NoSuchCgroup):
            call()


def test_limits_are_accepted(kernel, group):
    kernel.cgroups.create(group)
    kernel.cgroups.limit(group, ALL._replace(hugepages=(), mems=None))
    kernel.cgroups.limit(group, Limits(memory=-1, pids=-1, cpu_quota=-1))


def test_limits_are_in_the_files(kernel, group):
    cgroups = kernel.cgroups
    cgroups.create(group)
    wanted = settings(ALL._replace(hugepages=(), mems=None), tree_by_controller(cgroups.trees))
    cgroups.limit(group, ALL._replace(hugepages=(), mems=None))
    home = tree_by_controller(cgroups.trees)
    for item in wanted:
        assert Path(home[item.controller].mount, group, item.file).read_text().strip() == item.value, item.file


def test_a_limit_of_pids_holds(kernel, group):
    kernel.cgroups.create(group)
    kernel.cgroups.limit(group, Limits(pids=2))
    child = entered(kernel.cgroups, group, "sleep 60 & sleep 60 & sleep 60 & wait")
    assert child.wait(20) != 0, "the second child cannot be forked"
    kernel.cgroups.kill(group)


def test_a_limit_of_memory_kills_and_is_counted(kernel, group):
    kernel.cgroups.create(group)
    kernel.cgroups.limit(group, Limits(memory=8 << 20))
    child = entered(kernel.cgroups, group, f"exec {sys.executable} -c 'bytearray(1 << 28)'")
    assert child.wait(60) in (-signal.SIGKILL, 128 + signal.SIGKILL)
    assert kernel.cgroups.usage(group).oom_kills == 1


def test_usage_is_counted(kernel, group):
    kernel.cgroups.create(f"{group}/web")
    child = entered(kernel.cgroups, f"{group}/web", "while :; do :; done")
    try:
        until = time.monotonic() + 20
        while (kernel.cgroups.usage(f"{group}/web").cpu_nanoseconds or 0) < 20_000_000:
            assert time.monotonic() < until
        used = kernel.cgroups.usage(f"{group}/web")
    finally:
        kernel.cgroups.kill(group)
        child.wait()
    assert used.pids == 1
    assert used.memory >= used.working_set >= 0
    assert used.oom_kills == 0


@pytest.mark.parametrize("version", [2, 1], ids=["at once", "frozen, for want of version 2"])
def test_kill_ends_a_fork_bomb(kernel, group, version):
    trees = [tree for tree in kernel.cgroups.trees if tree.version == 1 or version == 2]
    if not trees:
        pytest.skip("no cgroup tree of version 1")
    cgroups = KernelCgroups(trees)
    cgroups.create(f"{group}/bomb")
    cgroups.limit(f"{group}/bomb", Limits(pids=40))
    child = entered(cgroups, f"{group}/bomb", "f() { f & f & wait; }; f 2>/dev/null")
    time.sleep(0.05)
    cgroups.kill(group, patience=30)
    child.wait(20)
    assert cgroups.pids(group) == []
    cgroups.remove(group)


def test_stopped_process_is_killed(kernel, group, spawned):
    kernel.cgroups.create(group)
    child = spawned()
    kernel.cgroups.enter(group, child.pid)
    child.send_signal(signal.SIGSTOP)
    kernel.cgroups.kill(group)
    assert child.wait(10) == -signal.SIGKILL


def test_kill_of_the_own_group_is_refused(kernel, group):
    kernel.cgroups.create(group)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            kernel.cgroups.enter(group, os.getpid())
            kernel.cgroups.kill(group)
        except errors.Refused:
            code = 7
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_ended_process_cannot_enter(kernel, group, spawned):
    kernel.cgroups.create(group)
    child = spawned("exit 0")
    child.wait()
    with pytest.raises(errors.NoSuchProcess):
        kernel.cgroups.enter(group, child.pid)


def test_invalid_limit_is_refused(kernel, group):
    kernel.cgroups.create(group)
    with pytest.raises(errors.LinuxError, match=f"cpuset.cpus of the cgroup {group} to 4000"):
        kernel.cgroups.limit(group, Limits(cpus="4000"))


def test_process_joins_by_writing_to_each_procs_file(kernel, group, spawned):
    kernel.cgroups.create(group)
    child = spawned()
    for door in kernel.cgroups.procs_files(group):
        Path(door).write_text(str(child.pid))
    assert kernel.cgroups.pids(group) == [child.pid]


def test_trees_of_a_hybrid_machine_are_found_once_each():
    found = layout.trees(parse_mountinfo(HYBRID), lambda mount: "hugetlb misc")
    assert found == [
        Tree(1, "/sys/fs/cgroup/cpu,cpuacct", frozenset(("cpu", "cpuacct"))),
        Tree(1, "/sys/fs/cgroup/memory", frozenset(("memory",))),
        Tree(2, "/sys/fs/cgroup/unified", frozenset(("hugetlb",))),
    ]
    assert tree_by_controller(found)["hugetlb"].version == 2


def test_the_tree_of_a_unified_machine_is_one():
    found = layout.trees(parse_mountinfo(UNIFIED), lambda mount: "cpuset cpu io memory hugetlb pids rdma")
    assert [item.version for item in found] == [2]
    assert found[0].controllers == {"cpuset", "cpu", "io", "memory", "hugetlb", "pids"}


def test_limits_have_their_names_in_each_version():
    first = {controller: Tree(1, f"/{controller}", frozenset((controller,))) for controller in CONTROLLERS}
    second = {controller: Tree(2, "/", frozenset(CONTROLLERS)) for controller in CONTROLLERS}
    assert settings(ALL, first) == [
        Setting("cpu", "cpu.shares", "1024"),
        Setting("cpu", "cpu.cfs_period_us", "100000"),
        Setting("cpu", "cpu.cfs_quota_us", "50000"),
        Setting("memory", "memory.limit_in_bytes", "67108864"),
        Setting("pids", "pids.max", "32"),
        Setting("cpuset", "cpuset.cpus", "0"),
        Setting("cpuset", "cpuset.mems", "0"),
        Setting("hugetlb", "hugetlb.2MB.limit_in_bytes", "0"),
    ]
    assert settings(ALL, second) == [
        Setting("cpu", "cpu.weight", "39"),
        Setting("cpu", "cpu.max", "50000 100000"),
        Setting("memory", "memory.max", "67108864"),
        Setting("pids", "pids.max", "32"),
        Setting("cpuset", "cpuset.cpus", "0"),
        Setting("cpuset", "cpuset.mems", "0"),
        Setting("hugetlb", "hugetlb.2MB.max", "0"),
    ]
    none = Limits(cpu_quota=-1, memory=-1, pids=-1)
    assert [setting.value for setting in settings(none, first)] == ["-1", "-1", "max"]
    assert [setting.value for setting in settings(none, second)] == ["max 100000", "max", "max"]
    assert settings(Limits(), {}) == []


def test_limit_without_a_controller_is_unsupported():
    with pytest.raises(errors.Unsupported, match="no cgroup has the hugetlb controller"):
        settings(ALL, {name: Tree(2, "/", frozenset()) for name in ("cpu", "memory", "pids", "cpuset")})


@given(st.integers(0, 1 << 20))
def test_weight_is_in_the_kernels_range(shares):
    assert 1 <= weight(shares) <= 10_000
    assert weight(shares) <= weight(shares + 1)


def test_usage_is_read_from_both_versions():
    second = {
        "cpu.stat": "usage_usec 1500\nuser_usec 1\n",
        "memory.current": "5000\n",
        "memory.stat": "anon 700\ninactive_file 1000\npgfault 9\npgmajfault 2\n",
        "memory.events": "low 0\noom 2\noom_kill 1\n",
        "pids.current": "3\n",
    }
    found = layout.usage(lambda _, file: second.get(file), {"memory": Tree(2, "/", frozenset())})
    assert found == (1_500_000, 5000, 4000, 700, 9, 2, 3, 1)
    nothing = layout.usage(lambda *_: None, {})
    assert set(nothing) == {None}


def test_warm_up_moves_no_process():
    before = Path("/proc/self/cgroup").read_text()
    warm_up()
    assert Path("/proc/self/cgroup").read_text() == before
