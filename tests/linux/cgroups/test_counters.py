"""All counters of a cgroup, by the same names from the files of both versions."""

import pytest

from podwire.linux.cgroups.counters import DeviceIo, read_counters
from podwire.linux.cgroups.layout import Tree

VERSION_1 = {
    ("cpu", "cpu.stat"): "nr_periods 7\nnr_throttled 2\nthrottled_time 5000\n",
    ("cpuacct", "cpuacct.usage"): "9000\n",
    ("cpuacct", "cpuacct.usage_user"): "6000\n",
    ("cpuacct", "cpuacct.usage_sys"): "3000\n",
    ("memory", "memory.usage_in_bytes"): "1000\n",
    ("memory", "memory.max_usage_in_bytes"): "1500\n",
    ("memory", "memory.failcnt"): "4\n",
    ("memory", "memory.kmem.usage_in_bytes"): "50\n",
    ("memory", "memory.limit_in_bytes"): "2000\n",
    ("memory", "memory.soft_limit_in_bytes"): "9223372036854771712\n",
    ("memory", "memory.stat"): (
        "cache 1\ntotal_cache 300\ntotal_rss 400\ntotal_mapped_file 20\ntotal_swap 30\ntotal_pgfault 11\n"
        "total_pgmajfault 1\ntotal_inactive_file 100\n"
    ),
    ("memory", "memory.oom_control"): "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    ("pids", "pids.current"): "5\n",
    ("pids", "pids.max"): "max\n",
    ("blkio", "blkio.throttle.io_service_bytes_recursive"): "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\nTotal 30\n",
    ("blkio", "blkio.throttle.io_serviced_recursive"): "8:0 Read 1\n8:0 Write 2\n",
    ("pressure", "cpu.pressure"): "some avg10=0.00 avg60=0.00 avg300=0.00 total=8\n",
    ("hugetlb", "hugetlb.2MB.usage_in_bytes"): "2097152\n",
    ("hugetlb", "hugetlb.2MB.max_usage_in_bytes"): "4194304\n",
}
VERSION_2 = {
    ("cpu", "cpu.stat"): (
        "usage_usec 9\nuser_usec 6\nsystem_usec 3\nnr_periods 7\nnr_throttled 2\nthrottled_usec 5\nnr_bursts 0\n"
    ),
    ("memory", "memory.current"): "1000\n",
    ("memory", "memory.peak"): "1500\n",
    ("memory", "memory.swap.current"): "30\n",
    ("memory", "memory.max"): "2000\n",
    ("memory", "memory.low"): "0\n",
    ("memory", "memory.stat"): (
        "anon 400\nfile 300\nkernel 50\nfile_mapped 20\ninactive_file 100\npgfault 11\npgmajfault 1\n"
    ),
    ("memory", "memory.events"): "low 0\nhigh 0\nmax 4\noom 3\noom_kill 3\n",
    ("pids", "pids.current"): "5\n",
    ("pids", "pids.max"): "max\n",
    ("io", "io.stat"): "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n",
    ("pressure", "cpu.pressure"): "some avg10=0.00 avg60=0.00 avg300=0.00 total=8\n",
    ("hugetlb", "hugetlb.2MB.current"): "2097152\n",
    ("hugetlb", "hugetlb.2MB.max_usage"): "4194304\n",
}
NUMBERS = {
    "cpu": 9000, "cpu_user": 6000, "cpu_system": 3000, "cpu_periods": 7, "cpu_throttled_periods": 2,
    "cpu_throttled": 5000, "memory": 1000, "memory_max": 1500, "memory_failures": 4, "memory_kernel": 50,
    "memory_limit": 2000, "memory_reservation": 0, "memory_cache": 300, "memory_rss": 400, "memory_mapped": 20,
    "swap": 30, "page_faults": 11, "major_page_faults": 1, "working_set": 900, "oom_kills": 3, "threads": 5,
    "threads_max": 0, "cpu_some": 8000,
}  # fmt: skip


def home(version, controllers):
    return dict.fromkeys(controllers.split(), Tree(version, "/sys/fs/cgroup", frozenset()))


@pytest.mark.parametrize(
    ("files", "trees"),
    [
        pytest.param(VERSION_1, home(1, "cpu cpuacct memory pids blkio hugetlb"), id="version 1"),
        pytest.param(VERSION_2, home(2, "cpu memory pids io hugetlb"), id="version 2"),
    ],
)
def test_both_versions_give_the_same_counters(files, trees):
    counters = read_counters(lambda *file: files.get(file), trees, ["2MB", "1GB"])
    assert counters.numbers == NUMBERS
    assert counters.devices == (DeviceIo(8, 0, reads=1, writes=2, read_bytes=10, written_bytes=20),)
    assert counters.huge_pages == {"2MB": (2 << 20, 4 << 20)}


def test_counters_without_files_are_left_out():
    counters = read_counters(lambda *_file: None, home(1, "cpu cpuacct memory pids blkio"))
    assert counters.numbers == {"cpu_periods": 0, "cpu_throttled_periods": 0, "cpu_throttled": 0}
    assert counters.devices == ()


def test_lines_of_an_unknown_form_are_ignored():
    files = {("blkio", "blkio.throttle.io_serviced_recursive"): "8:0 Read\nx:y Read 3\n8:0 Discard 3\n\n"}
    assert read_counters(lambda *file: files.get(file), home(1, "blkio")).devices == ()
    files = {("io", "io.stat"): "8:0\n8:16 rbytes=x wios\n"}
    devices = read_counters(lambda *file: files.get(file), home(2, "io")).devices
    assert devices == (DeviceIo(8, 0), DeviceIo(8, 16))


def test_a_real_group_has_counters(kernel, group):
    kernel.cgroups.create(group)
    assert {"cpu", "cpu_user", "cpu_system"} <= kernel.cgroups.counters(group).numbers.keys()
