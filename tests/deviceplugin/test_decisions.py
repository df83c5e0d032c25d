"""Decisions without a kernel: choices, duties, locations, hardware."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.deviceplugin.config import Interfaces
from podwire.deviceplugin.devices import cdi_kind, preferred
from podwire.deviceplugin.interface_pool import Action, decide
from podwire.deviceplugin.records import PoolRecords, Record, _decode, _encode
from podwire.deviceplugin.selection import Candidate, ids, reserved, wants
from podwire.linux.net.borrow import LinkSnapshot, snapshot_of
from podwire.linux.net.link_attributes import Attributes
from podwire.linux.net.link_locations import Elsewhere, LinkLocations
from podwire.linux.net.link_moves import LinkEvent, NamespaceEnded
from podwire.linux.net.snapshot_addresses import SavedAddress
from podwire.linux.net.sysfs import Hardware, Sysfs
from podwire.linux.values import Link

ADDRESS = SavedAddress(2, 24, 0, 0, ((1, "0a000001"), (2, "0a000001")))


def link(ifindex=5, name="eth5", **keys):
    return Link(ifindex, name, "", "02:00:00:00:00:05", 1500, keys.pop("up", True), "up", **keys)


def snapshot(**keys):
    return snapshot_of(link(**keys), (ADDRESS,) if keys.get("up", True) else ())


HERE, MOVED = snapshot(), snapshot(up=False)
CHANGED = snapshot(queue=7)


@pytest.mark.parametrize(
    ("record", "now", "facts", "wanted"),
    [
        pytest.param(Record(HERE), HERE, {}, Action.NOTHING, id="free and as it was"),
        pytest.param(Record(HERE), CHANGED, {}, Action.ADOPT, id="somebody on the host changed it"),
        pytest.param(Record(HERE), CHANGED, {"held": None}, Action.NOTHING, id="changed, and nobody knows who has it"),
        pytest.param(Record(HERE), None, {}, Action.MARK_OUT, id="it left"),
        pytest.param(Record(HERE, out=True), None, {"held": True}, Action.NOTHING, id="it is with its pod"),
        pytest.param(Record(HERE, out=True), MOVED, {"left": True, "held": True}, Action.RESTORE, id="it came home"),
        pytest.param(
            Record(HERE, out=True), MOVED, {"left": True, "held": None}, Action.RESTORE, id="home, none asked"
        ),
        pytest.param(Record(HERE), HERE, {"held": True}, Action.MARK_OUT, id="chosen, and not yet moved"),
        pytest.param(Record(HERE, out=True), CHANGED, {"held": True}, Action.NOTHING, id="held on the host"),
        pytest.param(Record(HERE, out=True), CHANGED, {}, Action.RESTORE, id="its pod has gone"),
        pytest.param(Record(HERE), MOVED, {"fresh": True}, Action.RESTORE, id="it travelled while there was no plugin"),
        pytest.param(
            Record(HERE), MOVED, {"fresh": True, "held": True}, Action.MARK_OUT, id="the same, and somebody has it"
        ),
        pytest.param(Record(HERE), MOVED, {"fresh": False}, Action.ADOPT, id="set down on the host before our eyes"),
        pytest.param(Record(HERE), CHANGED, {"fresh": True}, Action.ADOPT, id="changed while there was no plugin"),
    ],
)
def test_decision_depends_on_location_and_holder(record, now, facts, wanted):
    assert decide(record, now, **({"left": False, "fresh": False, "held": False} | facts)) is wanted


@pytest.mark.parametrize(
    ("available", "needed", "size", "numa", "chosen"),
    [
        pytest.param("abcd", "", 2, {"a": 0, "b": 1, "c": 1, "d": 0}, "ad", id="two of the first node that has two"),
        pytest.param("abc", "", 2, {"a": 0, "b": 1, "c": 1}, "bc", id="the node that has enough"),
        pytest.param("abcd", "b", 2, {"a": 0, "b": 1, "c": 0, "d": 1}, "bd", id="beside the one that must be"),
        pytest.param("abc", "", 3, {"a": 0, "b": 1, "c": 1}, "bca", id="the fullest first when none has enough"),
        pytest.param("abc", "", 2, {}, "ab", id="without nodes the first"),
        pytest.param("ab", "", 5, {}, "ab", id="no more than there are"),
        pytest.param("ab", "ab", 1, {}, "a", id="no more than asked for"),
    ],
)
def test_devices_of_few_numa_nodes_are_preferred(available, needed, size, numa, chosen):
    assert preferred(list(available), list(needed), size, numa) == list(chosen)


@given(
    st.lists(st.sampled_from("abcdefgh"), unique=True),
    st.integers(0, 8),
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 2)),
)
def test_a_preference_has_no_device_twice_and_the_size_that_was_asked_for(available, size, numa):
    chosen = preferred(available, available[:1], size, numa)
    assert len(chosen) == len(set(chosen)) == min(size, len(available))
    assert set(chosen) <= set(available)
    assert not size or chosen[:1] == available[:1]


PCI = Hardware("mlx5_core", "0000:3b:02.1", 1)


@pytest.mark.parametrize(
    ("pool", "taken_"),
    [
        pytest.param(Interfaces(names=("eth*",)), True, id="name"),
        pytest.param(Interfaces(names=("ens*",)), False, id="another name"),
        pytest.param(Interfaces(drivers=("mlx5_core", "ice")), True, id="driver"),
        pytest.param(Interfaces(drivers=("ice",)), False, id="another driver"),
        pytest.param(Interfaces(pci_addresses=("0000:3b:02.*",)), True, id="address"),
        pytest.param(Interfaces(pci_addresses=("0000:3b:03.*",)), False, id="another address"),
        pytest.param(Interfaces(numa_nodes=(0, 1)), True, id="node"),
        pytest.param(Interfaces(numa_nodes=(0,)), False, id="another node"),
        pytest.param(Interfaces(names=("eth*",), numa_nodes=(0,)), False, id="all must match"),
    ],
)
def test_a_pool_takes_links_that_match_every_list(pool, taken_):
    assert wants(pool, Candidate(link(), PCI)) is taken_


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (link(), ""),
        (link(name="lo"), "it is the loopback interface"),
        (link(ifindex=9), "the host's default route goes through it"),
        (link(master=3), "it is a port of another link"),
        (link(alias="podwire-device:x"), "a pool has made it"),
    ],
    ids=lambda each: each or "none" if isinstance(each, str) else each.name,
)
def test_links_that_the_host_needs_are_not_offered(one, why):
    assert reserved(one, {9}) == why


def test_a_device_has_its_pci_address_as_id_unless_two_links_share_it():
    alone = Candidate(link(1, "a"), PCI)
    assert ids({1: alone}) == {1: "0000:3b:02.1"}
    assert ids({1: alone, 2: Candidate(link(2, "b"), PCI)}) == {1: "a", 2: "b"}
    assert ids({3: Candidate(link(3, "c"), Hardware())}) == {3: "c"}


def test_a_cdi_kind_has_no_dots_in_its_class_and_begins_with_a_letter():
    assert cdi_kind("a.b") == "net.podwire.dev/a_b"
    assert cdi_kind("10g") == "net.podwire.dev/pool-10g"


def test_a_link_that_leaves_is_followed_and_known_when_it_comes_back_under_another_index():
    where = LinkLocations()
    where.at_home("nic", 5)
    where.present({1, 5})
    where.learn([LinkEvent(link(5), gone=True, went=(0, 7))])
    assert where.away("nic") == Elsewhere((0, 7))
    down = link(7, "eth0")
    where.learn([LinkEvent(down, netns=0)])
    assert where.away("nic") == Elsewhere((0, 7), down)
    where.learn([LinkEvent(down, gone=True, netns=0, went=(3, 9)), LinkEvent(link(9, "x"))])
    assert where.device_at(9) == "nic"


def test_a_link_that_moves_on_is_not_taken_for_one_that_the_host_had():
    where = LinkLocations()
    where.at_home("nic", 5)
    for _ in range(3):  # nothing came lately
        where.present({1, 5, 9})
    where.learn([LinkEvent(link(5), gone=True, went=(0, 7)), LinkEvent(link(7), gone=True, netns=0, went=(1, 9))])
    assert where.device_at(9) is None
    assert where.away("nic") == Elsewhere()


def test_a_look_that_is_faster_than_the_kernels_word_loses_nothing():
    where = LinkLocations()
    where.at_home("nic", 5)
    where.present({1, 5})
    where.present({1})
    assert where.away("nic") == Elsewhere()
    where.learn([LinkEvent(link(5), gone=True, went=(0, 5))])
    assert where.away("nic") == Elsewhere((0, 5))
    where.present({1, 5})
    where.learn([LinkEvent(link(5), gone=True, netns=0, went=(3, 5))])
    assert where.device_at(5) == "nic"


def test_end_of_a_namespace_does_not_mean_that_its_links_are_deleted():
    where = LinkLocations()
    for key, ifindex in (("there", 5), ("elsewhere", 6)):
        where.at_home(key, ifindex)
    where.learn(
        [LinkEvent(link(5), gone=True, went=(0, 5)), LinkEvent(link(6), gone=True, went=(1, 6)), NamespaceEnded(0)]
    )
    assert where.away("there") == Elsewhere()
    assert where.away("elsewhere") == Elsewhere((1, 6))
    where.doubt()
    assert where.away("elsewhere") == Elsewhere()


def test_virtual_links_end_with_their_namespace():
    where = LinkLocations()
    for key, ifindex, kind in (("card", 5, ""), ("virtual", 6, "veth")):
        where.at_home(key, ifindex)
        moved = link(ifindex)._replace(kind=kind)
        where.learn([LinkEvent(moved, gone=True, went=(0, ifindex)), LinkEvent(moved, netns=0)])
    where.learn([NamespaceEnded(0)])
    assert not where.deleted("card")
    assert where.away("card") == Elsewhere()
    assert where.deleted("virtual")


def test_deletion_is_distinguished_from_a_move():
    where = LinkLocations()
    where.at_home("free", 5)
    where.at_home("held", 6)
    where.learn(
        [
            LinkEvent(link(6), gone=True, went=(0, 6)),
            LinkEvent(link(6), gone=True, netns=0),
            LinkEvent(link(5), gone=True),
        ]
    )
    assert where.deleted("free")
    assert where.deleted("held")


def test_sysfs_has_driver_address_numa_node_and_physical_function(pci_tree):
    sysfs = Sysfs(pci_tree({"vf0": ("0000:3b:02.0", 1), "vf1": ("0000:3b:02.1", -1)}))
    assert sysfs.hardware("vf0")[:4] == ("mlx5_core", "0000:3b:02.0", 1, "0000:3b:00.0")
    assert sysfs.hardware("vf1").numa is None
    assert sysfs.hardware("veth0") == Hardware()


def test_a_virtio_link_has_the_address_of_the_pci_device_above_it(tmp_path: Path):
    pci = tmp_path / "devices/pci0000:00/0000:00:03.0"
    virtio = pci / "virtio0"
    (virtio / "net/eth0").mkdir(parents=True)
    (pci / "subsystem").symlink_to(tmp_path / "bus/pci")
    (pci / "numa_node").write_text("-1\n")
    (virtio / "driver").symlink_to(tmp_path / "bus/virtio/drivers/virtio_net")
    (virtio / "net/eth0/device").symlink_to(virtio)
    (tmp_path / "class/net").mkdir(parents=True)
    (tmp_path / "class/net/eth0").symlink_to(virtio / "net/eth0")
    assert Sysfs(tmp_path).hardware("eth0") == Hardware("virtio_net", "0000:00:03.0", None, root="pci0000:00")


NUMBERS = st.integers(0, 2**32 - 1)
ADDRESSES = st.builds(
    SavedAddress,
    st.sampled_from([2, 10]),
    st.integers(0, 128),
    st.integers(0, 255),
    NUMBERS,
    st.lists(st.tuples(st.integers(1, 11), st.binary(max_size=16).map(bytes.hex))).map(tuple),
    NUMBERS,
    NUMBERS,
)
ATTRIBUTES = st.builds(
    Attributes,
    mtu=NUMBERS,
    queue=NUMBERS,
    up=st.booleans(),
    promiscuous=st.booleans(),
    all_multicast=st.booleans(),
)
SNAPSHOTS = st.builds(
    LinkSnapshot,
    name=st.text(max_size=15),
    kind=st.text(max_size=8),
    mac=st.text(max_size=17),
    attributes=ATTRIBUTES,
    addresses=st.lists(ADDRESSES, max_size=3).map(tuple),
    **{
        name: st.just(()) for name in ("routes", "rules", "neighbours", "features", "changeable", "queues", "alt_names")
    },
    flags=st.just({}),
    sysctls=st.just({}),
)


@given(SNAPSHOTS)
def test_a_record_is_the_same_after_it_was_written_and_read(snapshot):
    assert _decode(_encode(Record(snapshot))) == Record(snapshot)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: text[: len(text) // 2], id="half of it"),
        pytest.param(lambda text: text.replace("1500", "1501"), id="another number"),
        pytest.param(lambda text: "[]", id="a list"),
        pytest.param(lambda text: "\0" * 100, id="zeros"),
        pytest.param(lambda text: "", id="nothing"),
    ],
)
def test_damaged_records_are_quarantined(tmp_path, damage):
    PoolRecords(tmp_path, "pool").write({"nic": Record(HERE, out=True)})
    assert PoolRecords(tmp_path, "pool").read() == {"nic": Record(HERE, out=True)}
    assert PoolRecords(tmp_path, "other").read() == {}
    file = tmp_path / "pool" / "nic.json"
    file.write_text(damage(file.read_text()))
    assert PoolRecords(tmp_path, "pool").read() == {}
    assert (tmp_path / "pool" / "nic.json.damaged").exists()


def test_record_of_format_1_loads(tmp_path):
    (tmp_path / "pool").mkdir()
    shutil.copy(Path(__file__).parent / "data/record-1.json", tmp_path / "pool/nic0.json")
    (record,) = PoolRecords(tmp_path, "pool").read().values()
    snapshot = record.snapshot
    assert (record.out, snapshot.name, snapshot.kind, snapshot.mac) == (True, "nic0", "veth", "02:00:00:00:00:01")
    assert (snapshot.attributes.mtu, snapshot.attributes.up, snapshot.attributes.alias) == (1400, True, None)
    assert str(snapshot.addresses[0].interface) == "10.9.1.1/24"


def test_records_are_stored_by_ids_that_are_not_file_names(tmp_path):
    records = PoolRecords(tmp_path, "pool")
    records.write({"0000:3b:02.1": Record(HERE), "..": Record(MOVED, out=True)})
    assert PoolRecords(tmp_path, "pool").read() == {"0000:3b:02.1": Record(HERE), "..": Record(MOVED, out=True)}
    records.write({"..": Record(MOVED)})
    assert PoolRecords(tmp_path, "pool").read() == {"..": Record(MOVED)}
