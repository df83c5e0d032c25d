"""The files that tell of hardware, read by what reads them on real machines."""

import pytest

from podwire.cluster.hardware import profile_yaml
from podwire.cluster.hardware.pci_functions import functions, links
from podwire.cluster.hardware.reconciler import desired_entries
from podwire.cluster.hardware.switch import names
from podwire.cluster.hardware.sysfs_mount import write
from podwire.cluster.hardware.sysfs_tree import Machine, Symlink, class_entry, cpu_list, directories, share, shown, tree
from podwire.linux.net.sysfs import Sysfs
from podwire.linux.values import Link


@pytest.fixture(params=profile_yaml.names())
def planted(request, tmp_path):
    """A whole tree, with the kernel's part of it as plain files."""
    profile = profile_yaml.load(request.param)
    for directory in directories(profile):
        (tmp_path / directory).mkdir(parents=True)
    write(tmp_path, tree(profile, Machine(cpus=8, kilobytes=1 << 20)))
    for item in (f"cpu{number}" for number in range(8)):
        (tmp_path / "devices/system/cpu" / item).mkdir(parents=True)
    for link in links(functions(profile)):
        live = tmp_path / "devices/virtual/net" / link.name
        live.mkdir(parents=True)
        (live / "mtu").write_text("1500\n")
        (live / "ifindex").write_text("7\n")
        write(tmp_path, shown(link, link.name, ("mtu", "ifindex")))
        write(tmp_path, {f"class/net/{link.name}": Symlink(class_entry(link.name, link))})
    return profile, tmp_path


def test_no_symlink_leads_nowhere(planted):
    _, root = planted
    lost = [str(path) for path in root.rglob("*") if path.is_symlink() and not path.exists()]
    assert lost == []


def test_sysfs_readers_find_the_devices_of_the_profile(planted):
    profile, root = planted
    sysfs = Sysfs(root)
    for link in links(functions(profile)):
        found = sysfs.hardware(link.name)
        assert (found.driver, found.pci, found.numa, found.parent) == (link.driver, link.pci, link.numa, link.physical)


def test_links_have_their_own_speed_and_the_kernels_live_files(planted):
    profile, root = planted
    for link in links(functions(profile)):
        place = root / "class/net" / link.name
        assert (place / "speed").read_text() == f"{link.nic.speed}\n"
        assert (place / "mtu").read_text() == "1500\n"
        (root / "devices/virtual/net" / link.name / "mtu").write_text("9000\n")
        assert (place / "mtu").read_text() == "9000\n"
        assert (place / "iflink").read_text() == (place / "ifindex").read_text()
        assert place.resolve().parent.name == "net"
        assert "virtual" not in place.resolve().parts


def test_cards_and_virtual_functions_name_each_other(planted):
    profile, root = planted
    devices = root / "bus/pci/devices"
    for nic in profile.nics:
        if not nic.vfs:
            assert not (devices / nic.pci / "sriov_totalvfs").exists()
            continue
        assert (devices / nic.pci / "sriov_numvfs").read_text() == f"{nic.vfs}\n"
        for number in range(nic.vfs):
            virtual = (devices / nic.pci / f"virtfn{number}").resolve()
            assert (virtual / "physfn").resolve() == (devices / nic.pci).resolve()


def test_the_root_of_a_device_is_in_its_path_as_drivers_look_for_it(planted):
    profile, root = planted
    for function in functions(profile):
        place = (root / "bus/pci/devices" / function.pci).resolve().relative_to(root.resolve())
        assert place.parts[:2] == ("devices", function.root)


def test_configuration_space_begins_with_vendor_and_device(planted):
    profile, root = planted
    for function in functions(profile):
        place = root / "bus/pci/devices" / function.pci
        config = (place / "config").read_bytes()
        assert config[:4] == bytes.fromhex(function.vendor)[::-1] + bytes.fromhex(function.device)[::-1]
        assert (place / "vendor").read_text() == f"0x{function.vendor}\n"


def test_rdma_devices_belong_to_their_cards(planted):
    profile, root = planted
    for function in functions(profile):
        if function.rdma:
            place = root / "class/infiniband" / function.rdma
            assert (place / "device").resolve() == (root / "bus/pci/devices" / function.pci).resolve()
            assert (place / "ports/1/gid_attrs/ndevs/0").read_text() == f"{function.name}\n"


@pytest.mark.parametrize(
    ("nodes", "cpus", "lists"),
    [
        pytest.param(1, 2, ["0-1"], id="one node has all"),
        pytest.param(2, 2, ["0", "1"], id="one each"),
        pytest.param(2, 1, ["", "0"], id="fewer processors than nodes"),
        pytest.param(3, 8, ["0-1", "2-4", "5-7"], id="as even as can be"),
    ],
)
def test_processors_are_shared_out_among_nodes(nodes, cpus, lists):
    assert [cpu_list(share(nodes, cpus, number)) for number in range(nodes)] == lists


CARDS = {link.name: link for link in links(functions(profile_yaml.load("sriov")))[:2]}
CARD, OTHER = CARDS
AT_HOME = {card: card for card in CARDS}


def card(name, shown_as=None):
    return class_entry(shown_as or name, CARDS[name])


@pytest.mark.parametrize(
    ("present", "others", "known", "entries", "cards"),
    [
        pytest.param(
            AT_HOME,
            {"lo"},
            {},
            {"lo": class_entry("lo", None), CARD: card(CARD), OTHER: card(OTHER)},
            {CARD: {CARD}, OTHER: {OTHER}},
            id="at first",
        ),
        pytest.param(
            {OTHER: OTHER},
            set(),
            {CARD: frozenset({CARD})},
            {CARD: card(CARD), OTHER: card(OTHER)},
            {CARD: {CARD}, OTHER: {OTHER}},
            id="one is in a pod and keeps its entry",
        ),
        pytest.param(
            {CARD: "tmp7", OTHER: OTHER},
            set(),
            {CARD: frozenset({CARD})},
            {CARD: card(CARD), "tmp7": card(CARD, "tmp7"), OTHER: card(OTHER)},
            {CARD: {CARD, "tmp7"}, OTHER: {OTHER}},
            id="one that is being renamed has both names",
        ),
        pytest.param(
            {CARD: "fast0", OTHER: OTHER},
            set(),
            {},
            {"fast0": card(CARD, "fast0"), OTHER: card(OTHER)},
            {CARD: {"fast0"}, OTHER: {OTHER}},
            id="one that was renamed",
        ),
        pytest.param(
            {OTHER: OTHER},
            {CARD},
            {CARD: frozenset({CARD})},
            {CARD: class_entry(CARD, None), OTHER: card(OTHER)},
            {CARD: {CARD}, OTHER: {OTHER}},
            id="another link has the name of one that is away",
        ),
        pytest.param(
            {OTHER: CARD},
            set(),
            {CARD: frozenset({CARD})},
            {CARD: card(OTHER, CARD)},
            {CARD: {CARD}, OTHER: {CARD}},
            id="a card has the name of one that is away",
        ),
    ],
)
def test_entries_follow_links(present, others, known, entries, cards):
    assert desired_entries(CARDS, present, others, known) == (
        entries,
        {name: frozenset(each) for name, each in cards.items()},
    )


def link(index, name, peer, netns, kind="veth"):
    return Link(index, name, kind, "02:00:00:00:00:01", 1500, True, "up", peer=peer, peer_netns=netns)


def test_a_card_is_known_by_the_end_of_its_cable():
    switch = [link(3, "a", 30, 0), link(4, "b", 40, 5), link(2, "switch0", 0, None, "bridge")]
    node = [link(30, "renamed", 3, 1), link(40, "veth7", 4, 9), link(50, "eth0", 3, 0), link(60, "c", 2, 1)]
    assert names(switch, node, 1) == {"a": "renamed"}


def test_a_card_that_no_link_led_to_has_no_number():
    assert names([link(3, "a", 30, 0)], [link(30, "a", 3, 1)], None) == {}
