"""Leases: unique, durable, found again whatever happened."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from podwire.ipam.entries import Owner
from podwire.ipam.leases import Leases
from podwire.ipam.ranges import parse_sets
from podwire.protocols.cni.errors import CniError

DUAL = parse_sets({"ranges": [[{"subnet": "10.1.0.0/29"}], [{"subnet": "fd00::/125"}]]})
SMALL = parse_sets({"subnet": "10.1.0.0/29"})
A, B = Owner("a", "eth0"), Owner("b", "eth0")


@pytest.fixture
def leases(tmp_path):
    return Leases(str(tmp_path / "net"), lock_seconds=0.3)


def names(tmp_path):
    return sorted(path.name for path in (tmp_path / "net").iterdir() if path.name[0] != "l")


def texts(addresses):
    return [str(address) for address in addresses]


def test_owner_gets_one_address_of_each_set_and_releases_all(leases, tmp_path):
    assert texts(leases.take(A, DUAL)) == ["10.1.0.2", "fd00::2"]
    assert texts(leases.of(A)) == ["10.1.0.2", "fd00::2"]
    assert texts(leases.release(A)) == ["10.1.0.2", "fd00::2"]
    assert names(tmp_path) == []
    assert leases.release(A) == ()


def test_full_disk_keeps_no_address_from_being_released(leases, tmp_path, monkeypatch):
    leases.take(B, SMALL)
    (tmp_path / "net" / "10.1.0.5").write_text("a\neth0")  # leased by the reference plugin
    (tmp_path / "net" / "last_reserved_ip.0").write_text("10.1.0.5")

    def refuse(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    assert texts(leases.release(A)) == ["10.1.0.5"]
    assert texts(leases.release(B)) == ["10.1.0.2"]
    assert not (tmp_path / "net" / "10.1.0.5").exists()


def test_take_is_idempotent(leases, tmp_path):
    first = leases.take(A, DUAL)
    before = names(tmp_path)
    assert leases.take(A, DUAL) == first
    assert names(tmp_path) == before


def test_two_interfaces_are_two_owners(leases):
    assert texts(leases.take(A, SMALL) + leases.take(Owner("a", "net1"), SMALL)) == ["10.1.0.2", "10.1.0.3"]
    leases.release(A)
    assert texts(leases.of(Owner("a", "net1"))) == ["10.1.0.3"]


def test_released_address_is_leased_last_also_after_a_restart(leases, tmp_path):
    leases.take(A, SMALL)
    leases.release(A)
    assert texts(Leases(str(tmp_path / "net")).take(A, SMALL)) == ["10.1.0.3"]


def test_full_pool_is_an_error_until_a_release(leases):
    owners = [Owner(f"c{number}", "eth0") for number in range(5)]
    for owner in owners:
        leases.take(owner, SMALL)
    with pytest.raises(CniError, match=r"no IP addresses available in range set: 10\.1\.0\.1-10\.1\.0\.6") as caught:
        leases.take(A, SMALL)
    assert caught.value.code == 11
    assert leases.of(A) == ()
    freed = leases.release(owners[3])
    assert leases.take(A, SMALL) == freed


def test_full_set_takes_nothing_from_the_other(leases, tmp_path):
    sets = parse_sets({"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.2.0.0/30"}]]})
    leases.take(A, sets)
    before = names(tmp_path)
    with pytest.raises(CniError):
        leases.take(B, sets)
    assert names(tmp_path) == before


@pytest.mark.parametrize(
    ("wanted", "reported"),
    [
        ("10.1.0.4", None),
        ("10.1.0.1", "the gateway"),
        ("10.1.0.2", "belongs to b eth0"),
        ("10.1.0.7", "failed to allocate all requested IPs"),
        ("10.9.0.4", "failed to allocate all requested IPs"),
        ("fd00::9", "failed to allocate all requested IPs"),
    ],
)
def test_requested_address_is_leased_or_nothing(leases, wanted, reported, tmp_path):
    leases.take(B, SMALL)
    before = names(tmp_path)
    if reported is None:
        assert texts(leases.take(A, SMALL, [ip_address(wanted)])) == [wanted]
        return
    with pytest.raises(CniError, match=reported):
        leases.take(A, SMALL, [ip_address(wanted)])
    assert names(tmp_path) == before


def test_lease_outside_the_new_ranges_is_replaced(leases):
    leases.take(A, SMALL)
    other = parse_sets({"subnet": "10.7.0.0/24"})
    assert texts(leases.take(A, other)) == ["10.7.0.2"]
    assert texts(leases.release(A)) == ["10.7.0.2"]


def test_release_ignores_the_ranges(leases, tmp_path):
    leases.take(A, DUAL)
    Leases(str(tmp_path / "net")).release(A)
    assert names(tmp_path) == []


def test_address_of_another_owner_is_not_taken(leases, tmp_path):
    leases.take(A, SMALL)
    (tmp_path / "net" / "10.1.0.2").unlink()
    (tmp_path / "net" / "10.1.0.2").symlink_to(B.entry)
    leases.release(A)
    assert str((tmp_path / "net" / "10.1.0.2").readlink()) == B.entry


def test_owner_without_its_address_gets_another(leases, tmp_path):
    leases.take(A, SMALL)
    (tmp_path / "net" / "10.1.0.2").unlink()
    (tmp_path / "net" / "10.1.0.2").symlink_to(B.entry)
    assert texts(leases.take(A, SMALL)) == ["10.1.0.3"]


def test_lease_without_the_owners_entry_is_found(leases, tmp_path):
    leases.take(A, DUAL)
    (tmp_path / "net" / A.entry).unlink()
    assert sorted(texts(leases.release(A))) == ["10.1.0.2", "fd00::2"]
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", ["a\r\neth0", "a\neth0", "a", " a \n", "a\r\neth0\r\n"])
def test_files_of_the_reference_plugin_are_respected_and_released(leases, tmp_path, content):
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "10.1.0.2").write_text(content)
    (tmp_path / "net" / "last_reserved_ip.0").write_text("10.1.0.6")
    assert texts(leases.take(B, SMALL)) == ["10.1.0.3"]
    assert texts(leases.release(A)) == ["10.1.0.2"]


@pytest.mark.parametrize("junk", ["directory", "bytes", "nowhere"])
def test_damaged_entry_is_never_leased(leases, tmp_path, junk):
    path = tmp_path / "net" / "10.1.0.2"
    path.parent.mkdir()
    match junk:
        case "directory":
            path.mkdir()
        case "bytes":
            path.write_bytes(os.urandom(64))
        case "nowhere":
            path.symlink_to("/nowhere")
    assert texts(leases.take(A, SMALL)) == ["10.1.0.3"]
    leases.release(A)


def test_empty_file_of_the_reference_plugin_is_free(leases, tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "10.1.0.2").touch()
    assert texts(leases.take(A, SMALL)) == ["10.1.0.2"]


@pytest.mark.parametrize("junk", ["not an address", "", "10.9.9.9"])
def test_damaged_cursor_is_ignored(leases, tmp_path, junk):
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "last_reserved_ip.0").write_text(junk)
    assert texts(leases.take(A, SMALL)) == ["10.1.0.2"]


def test_held_lock_is_code_11(leases, tmp_path):
    leases.take(A, SMALL)
    with (tmp_path / "net" / "lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(CniError, match="lock") as caught:
            leases.take(B, SMALL)
    assert caught.value.code == 11
    leases.take(B, SMALL)


def test_stale_lock_file_is_ignored(leases, tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "lock").write_text("pid 1")
    leases.take(A, SMALL)


TAKER = """
import sys
sys.path.insert(0, sys.argv[1])
from podwire.ipam.entries import Owner
from podwire.ipam.leases import Leases
from podwire.ipam.ranges import parse_sets
from podwire.protocols.cni.errors import CniError
leases = Leases(sys.argv[2])
sets = parse_sets({"subnet": sys.argv[3]})
for number in range(int(sys.argv[5])):
    try:
        print(*leases.take(Owner(f"{sys.argv[4]}-{number}", "eth0"), sets))
    except CniError:
        pass
"""


def takers(tmp_path, subnet, processes, each):
    here = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", TAKER, here, str(tmp_path / "net"), subnet]
    running = [
        subprocess.Popen([*command, f"c{number}", str(each)], stdout=subprocess.PIPE, text=True)
        for number in range(processes)
    ]
    result = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0] * processes
    return [line for text in result for line in text.split()]


def test_concurrent_processes_get_distinct_addresses(tmp_path):
    addresses = takers(tmp_path, "10.1.0.0/24", 8, 10)
    assert len(addresses) == len(set(addresses)) == 80


def test_concurrent_requests_lease_each_address_once(tmp_path):
    addresses = takers(tmp_path, "10.1.0.0/27", 6, 8)
    assert len(addresses) == len(set(addresses)) == 29
    owners = [name for name in names(tmp_path) if name.startswith("@")]
    assert len(owners) == 29


@pytest.mark.parametrize("point", ["ipam.named", "ipam.taken", "ipam.freed"])
def test_release_finds_what_a_killed_process_left(tmp_path, point):
    here = str(Path(__file__).parents[2])
    if point == "ipam.freed":
        Leases(str(tmp_path / "net")).take(Owner("c0-0", "eth0"), parse_sets({"subnet": "10.1.0.0/24"}))
        script = TAKER.replace("leases.take(Owner(f", "leases.release(Owner(f").replace(
            ', "eth0"), sets)', ', "eth0"))'
        )
    else:
        script = TAKER
    command = [sys.executable, "-c", script, here, str(tmp_path / "net"), "10.1.0.0/24", "c0", "1"]
    done = subprocess.run(command, env={**os.environ, "PODWIRE_FAILPOINTS": f"{point}=kill"}, check=False)
    assert done.returncode == -signal.SIGKILL
    leases = Leases(str(tmp_path / "net"))
    leases.release(Owner("c0-0", "eth0"))
    assert names(tmp_path) == []


class LeasesAlwaysAgree(RuleBasedStateMachine):
    """Leases that are taken and released in any order: a model knows the owner of each address."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.leases = Leases(self.directory.name + "/net")
        self.has = {}

    owners = st.integers(0, 7).map(lambda each: Owner(f"c{each}", "eth0"))

    @rule(owner=owners)
    def take(self, owner):
        try:
            given = self.leases.take(owner, SMALL)
        except CniError:
            assert len(self.has) == 5
            assert owner not in self.has
            return
        assert self.has.get(owner, given) == given
        self.has[owner] = given

    @rule(owner=owners)
    def release(self, owner):
        assert self.leases.release(owner) == self.has.pop(owner, ())

    @invariant()
    def everybody_has_what_it_got_and_nobody_else_has_it(self):
        assert {owner: self.leases.of(owner) for owner in self.has} == self.has
        given = [address for addresses in self.has.values() for address in addresses]
        assert len(set(given)) == len(given)

    def teardown(self):
        self.directory.cleanup()


TestLeasesAlwaysAgree = LeasesAlwaysAgree.TestCase
TestLeasesAlwaysAgree.settings = settings(max_examples=15, stateful_step_count=25)
