"""Leases over the years: boots, garbage, damage, and the reference plugin before, between and after."""

from ipaddress import ip_address

import pytest

from podwire.ipam import entries
from podwire.ipam.entries import Owner
from podwire.ipam.leases import Leases
from podwire.ipam.ranges import parse_sets
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.protocols.cni.errors import CniError

SMALL = parse_sets({"subnet": "10.1.0.0/29"})
DUAL = parse_sets({"ranges": [[{"subnet": "10.1.0.0/29"}], [{"subnet": "fd00::/125"}]]})
A, B, C = (Owner(letter, "eth0") for letter in "abc")


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "net"


@pytest.fixture
def on(directory):
    """The same leases, as of some boot."""
    events = []

    def make(boot="this", **keys):
        return Leases(str(directory), lock_seconds=0.3, boot=boot, warn=events.append, **keys)

    make.reported = events
    return make


def held(directory):
    return {path.name for path in directory.iterdir() if path.name[0] not in "l@" and "@" not in path.name}


def test_leases_of_an_earlier_boot_are_released(on, directory):
    on("last").take(A, DUAL, netns="/run/netns/gone")
    on("last").take(B, DUAL, netns="/run/netns/gone-too")
    on().take(C, SMALL, netns="/run/netns/c")
    assert held(directory) == {"10.1.0.4"}
    assert len(on.reported) == 2
    assert {path.name for path in directory.iterdir() if "@" in path.name} == {C.entry, C.file}


def test_lease_of_this_boot_is_kept_without_its_namespace(on):
    on().take(A, SMALL, netns="/run/netns/gone")
    on().take(B, SMALL, netns="/run/netns/b")
    assert on().of(A) != ()


@pytest.mark.parametrize("kept", ["alive", "unknown"])
def test_lease_with_a_live_namespace_outlasts_a_boot(on, tmp_path, kept):
    namespaces = KernelNamespaces(tmp_path / "netns")
    path = namespaces.create("a").path if kept == "alive" else ""
    try:
        on("last").take(A, SMALL, netns=path)
        on().take(B, SMALL, netns="/run/netns/b")
        assert on().of(A) == (ip_address("10.1.0.2"),)
    finally:
        if kept == "alive":
            namespaces.remove("a")


def test_plain_file_is_not_a_namespace(on, tmp_path):
    (tmp_path / "netns").touch()
    on("last").take(A, SMALL, netns=str(tmp_path / "netns"))
    on().take(B, SMALL)
    assert on().of(A) == ()


def test_pool_full_of_stale_leases_has_capacity(on):
    for number in range(5):
        on("last").take(Owner(f"c{number}", "eth0"), SMALL, netns="/run/netns/gone")
    on().check_capacity(SMALL)
    on().take(A, SMALL, netns="/run/netns/a")
    assert [item.owner for item in on().all()] == [A]


def test_pool_full_of_live_leases_has_no_capacity(on):
    for number in range(5):
        on().take(Owner(f"c{number}", "eth0"), SMALL, netns="/run/netns/gone")
    with pytest.raises(CniError, match=r"no IP addresses available.*5 of 5 are leased") as caught:
        on().check_capacity(SMALL)
    assert caught.value.code == 50


def test_owner_of_an_earlier_boot_gets_its_address_again(on, tmp_path):
    namespaces = KernelNamespaces(tmp_path / "netns")
    path = namespaces.create("a").path
    try:
        given = on("last").take(A, SMALL, netns=path)
        assert on().take(A, SMALL, netns=path) == given
    finally:
        namespaces.remove("a")


def test_gc_releases_invalid_leases_and_is_idempotent(on, directory):
    for item in (A, B, C):
        on().take(item, DUAL)
    on().release_others(frozenset({B}))
    assert held(directory) == {"10.1.0.3", "fd00::3"}
    on().release_others(frozenset({B}))
    assert on().of(B) == (ip_address("10.1.0.3"), ip_address("fd00::3"))
    on().release_others(frozenset())
    assert [path.name for path in directory.iterdir() if path.name[0] != "l"] == []


def test_missing_directory_is_empty(on, directory):
    on().release_others(frozenset())
    on().check_capacity(SMALL)
    assert on().all() == on().used() == []
    assert not directory.exists()


@pytest.mark.parametrize(
    ("content", "valid", "stays"),
    [
        ("x\r\neth0", {("x", "eth0")}, True),
        ("x\r\neth0", {("x", "net1")}, False),
        ("x", {("x", "eth0")}, True),
        ("x", {("y", "eth0")}, False),
    ],
)
def test_gc_releases_files_of_the_reference_plugin(on, directory, content, valid, stays):
    directory.mkdir()
    (directory / "10.1.0.2").write_text(content)
    on().release_others(frozenset(valid))
    assert held(directory) == ({"10.1.0.2"} if stays else set())


JUNK = ["directory", "bytes", "nowhere", "words"]


def damage(path, junk):
    path.unlink(missing_ok=True)
    match junk:
        case "directory":
            path.mkdir()
        case "bytes":
            path.write_bytes(b"\x00\xff" * 32)
        case "nowhere":
            path.symlink_to("/nowhere")
        case "words":
            path.write_text("three little words")


@pytest.mark.parametrize("junk", JUNK)
def test_damaged_entry_is_reported_and_not_leased(on, directory, junk):
    directory.mkdir()
    damage(directory / "10.1.0.2", junk)
    given = [on().take(Owner(f"c{number}", "eth0"), SMALL) for number in range(4)]
    assert ip_address("10.1.0.2") not in {address for addresses in given for address in addresses}
    with pytest.raises(CniError, match="no IP addresses available"):
        on().take(A, SMALL)
    with pytest.raises(CniError, match="damaged"):
        on().take(A, SMALL, [ip_address("10.1.0.2")])
    assert [item for item in on.reported if "10.1.0.2 is damaged" in item] != []


@pytest.mark.parametrize("junk", JUNK)
def test_gc_repairs_a_damaged_entry_for_its_owner(on, directory, junk):
    on().take(A, SMALL)
    damage(directory / "10.1.0.2", junk)
    on().release_others(frozenset({A}))
    assert on().of(A) == (ip_address("10.1.0.2"),)
    assert str((directory / "10.1.0.2").readlink()) == A.file


@pytest.mark.parametrize("junk", JUNK)
def test_gc_removes_a_damaged_entry_only_if_no_owner_is_possible(on, directory, junk):
    on().take(A, SMALL)
    damage(directory / "10.1.0.5", junk)
    on().release_others(frozenset({A, B}))
    assert "10.1.0.5" in held(directory), "it may be what b has"
    on().release_others(frozenset({A}))
    assert "10.1.0.5" not in held(directory)


@pytest.mark.parametrize("junk", JUNK)
def test_release_frees_an_address_whose_entry_is_damaged(on, directory, junk):
    on().take(A, SMALL)
    damage(directory / "10.1.0.2", junk)
    assert on().release(A) == (ip_address("10.1.0.2"),)
    assert held(directory) == set()
    assert len([line for line in on.reported if "10.1.0.2" in line and str(A) in line]) == 1


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("boot", ["this", "next"])
def test_owner_keeps_its_address_when_the_entry_is_damaged(on, directory, junk, boot):
    on().take(A, SMALL)
    damage(directory / "10.1.0.2", junk)
    assert on(boot).take(A, SMALL) == (ip_address("10.1.0.2"),)
    assert on(boot).take(B, SMALL) == (ip_address("10.1.0.3"),)
    assert str((directory / "10.1.0.2").readlink()) == A.file
    assert len(on.reported) == 1, "reported once"


def test_first_inspection_of_a_boot_restores_damaged_entries_of_others(on, directory):
    on().take(A, SMALL)
    damage(directory / "10.1.0.2", "bytes")
    on("next").take(B, SMALL)
    assert on("next").of(A) == (ip_address("10.1.0.2"),)


def test_damaged_lease_of_an_earlier_boot_is_released(on, directory):
    on("last").take(A, SMALL, netns="/run/netns/gone")
    damage(directory / "10.1.0.2", "bytes")
    on().take(B, SMALL)
    assert held(directory) == {"10.1.0.3"}


def test_damaged_entry_that_two_owners_have_stays_for_gc(on, directory):
    on().take(A, SMALL)
    on().take(B, SMALL)
    (directory / B.entry).unlink()
    (directory / B.entry).symlink_to("10.1.0.2")  # as of a crash before it took the address, which a has since
    damage(directory / "10.1.0.2", "bytes")
    on().release(B)
    assert "10.1.0.2" in held(directory)
    on().release(A)
    assert "10.1.0.2" not in held(directory)


def test_release_goes_on_with_a_damaged_entry_that_cannot_be_removed(on, directory):
    on().take(A, SMALL)
    damage(directory / "10.1.0.2", "directory")
    (directory / "10.1.0.2" / "full").mkdir()
    on().release(A)
    assert not (directory / A.entry).is_symlink()


def test_gc_goes_on_after_a_failure_and_reports_all(on, directory):
    on().take(A, SMALL)
    for name in ("10.1.0.4", "10.1.0.5"):
        (directory / name / "full").mkdir(parents=True)
    with pytest.raises(CniError, match=r"10\.1\.0\.[45]: Directory not empty \(10\.1\.0\.[45]: Directory"):
        on().release_others(frozenset())
    assert held(directory) == {"10.1.0.4", "10.1.0.5"}


def test_owner_in_a_reference_file_keeps_its_address(on, directory):
    directory.mkdir()
    (directory / "10.1.0.5").write_text("a\r\neth0")
    (directory / "last_reserved_ip.0").write_text("10.1.0.5")
    assert on().take(A, SMALL) == (ip_address("10.1.0.5"),)
    assert on().release(A) == (ip_address("10.1.0.5"),)
    assert held(directory) == set()


def test_leases_of_the_reference_plugin_are_taken_over(on, directory):
    on().take(A, SMALL)
    (directory / "10.1.0.3").write_text("b\r\neth0")
    (directory / "last_reserved_ip.0").write_text("10.1.0.3")
    assert on().take(C, SMALL) == (ip_address("10.1.0.4"),)
    assert [item.owner for item in on().all() if item.owner == B] == [B]
    assert on().release(B) == (ip_address("10.1.0.3"),)


def test_leases_released_by_the_reference_plugin_are_dropped(on, directory):
    on().take(A, SMALL)
    (directory / "10.1.0.2").unlink()
    (directory / A.file).unlink()
    on("next").take(B, SMALL)
    assert not (directory / A.entry).is_symlink()


def test_reference_plugin_reads_our_mirror_files(on, directory):
    on().take(A, DUAL)
    assert (directory / "10.1.0.2").read_bytes() == (directory / "fd00::2").read_bytes() == b"a\r\neth0"
    assert (directory / "last_reserved_ip.1").read_text() == "fd00::2"
    on(mirror=False).take(B, DUAL)
    assert not (directory / "10.1.0.3").exists()
    assert (directory / "10.1.0.3").is_symlink()


def test_release_of_an_unknown_owner_reads_no_entries(on, monkeypatch):
    on().take(A, SMALL)

    def never(_self):
        raise AssertionError("all entries are read")

    monkeypatch.setattr(entries.Entries, "names", never)
    assert on().release(B) == ()
    assert on().take(C, SMALL) == (ip_address("10.1.0.3"),)
    assert on().release(A) == (ip_address("10.1.0.2"),)


def test_crowded_pool_is_listed_once(on, directory, monkeypatch):
    sets = parse_sets({"subnet": "10.1.0.0/22"})
    directory.mkdir()
    for number in range(2, 1000):
        (directory / str(ip_address("10.1.0.0") + number)).symlink_to(f"~c{number}@eth0")
    looked = []
    is_free = entries.Entries.is_free
    on().take(A, parse_sets({"subnet": "10.9.0.0/24"}))
    monkeypatch.setattr(entries.Entries, "is_free", lambda self, name: looked.append(name) or is_free(self, name))
    assert on().take(B, sets) == (ip_address("10.1.3.232"),)
    assert len(looked) <= 66


def test_huge_subnet_is_never_iterated(on):
    huge = parse_sets({"subnet": "fd00::/64", "exclude": ["fd00::/65"]})
    assert on().take(A, huge) == (ip_address("fd00::8000:0:0:0"),)
    on().check_capacity(huge)
