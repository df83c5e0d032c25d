"""A machine that was switched off: the disk is as it was, the kernel knows nothing, and the boot has another name."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from podwire.ipam.deletions import boot_id

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot(host, number: int) -> None:
    """From now on, on the host of the caller, the boot id is another one."""
    name = host.root / f"boot{number}"
    name.write_text(f"0000000{number}-1111-2222-3333-444444444444\n")
    subprocess.run(["mount", "--bind", name, BOOT_ID], check=True)
    assert Path(BOOT_ID).read_text() == name.read_text()
    boot_id.cache_clear()


@pytest.fixture(autouse=True)
def _true_boot():
    yield
    boot_id.cache_clear()


def fill(network, names: list[str]) -> None:
    """Pods for the whole pool, all at once."""
    for name in names:
        network.begin(name)
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(network.add, names))


@pytest.mark.parametrize("kind", ["bridge", "ptp"])
def test_full_pool_is_usable_after_a_reboot_and_stale_leases_are_gone(hosts, network, kind):
    before, after = [f"old{number}" for number in range(5)], [f"new{number}" for number in range(5)]
    first = []

    def yesterday(host):
        boot(host, 1)
        fill(network(host, kind), before)
        assert len([lease for lease in host.left()["leases"] if lease.startswith("10.")]) == 5, "it is full"
        first.append(host)

    def today(host):
        old = first[0]
        host.root, host.leases, host.records = old.root, old.leases, old.records
        boot(host, 2)
        there = network(host, kind)
        fill(there, after)
        for item in before[:2]:
            there.delete(item, netns="")  # its runtime remembers it
        there.collect(*after)
        for item in after:
            there.check(item)
        owners = {record.split("@")[1] for record in host.left()["records"]}
        assert owners == set(after)
        for item in after:
            there.delete(item)
        assert host.left() == {}
        assert there.capacity() == 5

    hosts(yesterday)
    hosts(today)


def test_pod_with_a_live_namespace_keeps_its_address(hosts, network):
    """As when only the name of the boot was changed, by a machine that was frozen and went on elsewhere."""

    def frozen(host):
        boot(host, 1)
        there = network(host, "bridge")
        fill(there, ["a", "b"])
        kept = [address["address"] for address in there.results["b"][0]["ips"]]
        host.namespaces.remove("a")
        boot(host, 2)
        fill(there, ["c", "d", "e", "f"])
        given = [address["address"] for name in "cdef" for address in there.results[name][0]["ips"]]
        assert not set(kept) & set(given)
        there.check("b")
        for letter in "abcdef":
            there.delete(letter, netns="" if letter == "a" else None)
        assert host.left() == {}

    hosts(frozen)
