"""Facts about the machine: read from files as they really look, and from this very machine."""

import os
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from podwire.linux import machine
from podwire.linux.machine import KernelMachine
from podwire.linux.values import Address, Route

MEMINFO = """\
MemTotal:       24684100 kB
MemFree:        22881808 kB
MemAvailable:   24078952 kB
SwapTotal:       1048576 kB
HugePages_Total:       0
"""


@pytest.fixture
def root(tmp_path):
    """A small machine."""
    files = {
        "proc/meminfo": MEMINFO,
        "proc/loadavg": "0.01 0.18 1.38 1/93 25869\n",
        "proc/sys/kernel/pid_max": "32768\n",
        "proc/sys/kernel/threads-max": "1093\n",
        "proc/sys/kernel/osrelease": "6.18.0-test\n",
        "proc/sys/kernel/random/boot_id": "b-b-b\n",
        "sys/devices/system/cpu/online": "0-3,8\n",
        "sys/class/dmi/id/product_uuid": "u-u-u\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
        "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
        "etc/machine-id": "m-m-m\n",
        "etc/os-release": 'NAME="Test"\nPRETTY_NAME="Test Linux 1"\n',
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_facts_are_read(root):
    facts = KernelMachine(root).facts()
    assert facts == machine.Facts(
        cpus=5,
        memory=24684100 * 1024,
        swap=1024**3,
        hugepages=(("2Mi", 6 * 1024**2), ("1Gi", 0)),
        kernel="6.18.0-test",
        os_image="Test Linux 1",
        architecture={"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
        machine_id="m-m-m",
        system_uuid="u-u-u",
        boot_id="b-b-b",
    )


def test_free_resources_are_read(root, tmp_path):
    left = KernelMachine(root).left(tmp_path)
    assert left.memory == 24078952 * 1024
    assert (left.pids, left.pids_size) == (1000, 1093)
    assert 0 <= left.disk <= left.disk_size > 0


def test_the_disk_is_that_of_the_nearest_directory(root, tmp_path):
    real = KernelMachine(root)
    assert real.left(tmp_path / "not" / "there" / "yet").disk_size == real.left(tmp_path).disk_size


def test_missing_facts_are_empty(tmp_path):
    facts = KernelMachine(tmp_path).facts()
    assert (facts.memory, facts.hugepages, facts.os_image, facts.machine_id) == (0, (), "", "")
    assert facts.cpus >= 1
    assert KernelMachine(tmp_path).left(tmp_path).pids_size == 0


def test_system_uuid_defaults_to_the_machine_id(root):
    (root / "sys/class/dmi/id/product_uuid").unlink()
    assert KernelMachine(root).facts().system_uuid == "m-m-m"


def test_this_machine_has_facts(tmp_path):
    real = KernelMachine()
    facts, left = real.facts(), real.left(tmp_path)
    assert facts.memory > left.memory > 0
    assert facts.kernel == os.uname().release
    assert facts.boot_id
    assert all(not address.is_loopback for address in real.addresses())


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 1), ("0-3", 4), ("0-1,4-5,9", 5), ("", 0)],
)
def test_processors_are_counted(text, count):
    assert machine.count_cpus(text) == count


@pytest.mark.parametrize(
    ("size", "text"), [(2 * 1024**2, "2Mi"), (1024**3, "1Gi"), (65536, "64Ki"), (7, "7"), (0, "0")]
)
def test_sizes_are_written_short(size, text):
    assert machine.binary_size(size) == text


def at(index, text, *, tentative=False):
    return Address(index, ip_interface(text), tentative=tentative)


def default(index, *, metric=0, source=None, to="0.0.0.0/0"):
    return Route(ip_network(to), ifindex=index, metric=metric, source=ip_address(source) if source else None)


LOOPBACK = at(1, "127.0.0.1/8")


@pytest.mark.parametrize(
    ("routes", "addresses", "expected"),
    [
        pytest.param([], [LOOPBACK], [], id="only itself"),
        pytest.param([], [LOOPBACK, at(2, "10.0.0.2/24")], ["10.0.0.2"], id="no default route"),
        pytest.param(
            [default(3)], [at(2, "10.0.0.2/24"), at(3, "10.9.0.2/24")], ["10.9.0.2", "10.0.0.2"], id="default route"
        ),
        pytest.param(
            [default(2, metric=100), default(3, metric=10)],
            [at(2, "10.0.0.2/24"), at(3, "10.9.0.2/24")],
            ["10.9.0.2", "10.0.0.2"],
            id="the better of two",
        ),
        pytest.param(
            [default(2, source="10.0.0.3")],
            [at(2, "10.0.0.2/24"), at(2, "10.0.0.3/24")],
            ["10.0.0.3", "10.0.0.2"],
            id="the address that the route prefers",
        ),
        pytest.param(
            [default(2, to="::/0"), default(2)],
            [at(2, "fd00::2/64"), at(2, "10.0.0.2/24")],
            ["10.0.0.2", "fd00::2"],
            id="both families",
        ),
        pytest.param(
            [default(2)],
            [at(2, "fe80::1/64"), at(2, "169.254.0.2/16"), at(2, "fd00::2/64", tentative=True)],
            [],
            id="none that others can use",
        ),
    ],
)
def test_address_of_the_default_route_comes_first(routes, addresses, expected):
    assert [str(address) for address in machine.sort_addresses(routes, addresses)] == expected
