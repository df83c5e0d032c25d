"""A device in a slice; nothing is in it that the API would refuse."""

from ipaddress import ip_interface

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.dradriver.inventory.config import Shared
from podwire.dradriver.inventory.devices import (
    NO_CARRIER,
    Facts,
    Programs,
    attributes,
    capacity,
    entry,
    published,
    split,
    tainted,
)
from podwire.kinds.builtin.resource import resource_slice as validation
from podwire.linux.net.sysfs import Hardware, Rdma
from podwire.linux.values import Link

LINK = Link(3, "eth1", "", "02:00:00:00:00:01", 9000, True, "up")
NIC = Hardware("mlx5_core", "0000:3b:00.0", 1, "", "0x15b3", "0x1017", "pci0000:3a", total_vfs=8, vfs=2)


def refusals(*devices) -> list[str]:
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "net.podwire.dev", "pool": pool, "nodeName": "n1", "devices": list(devices)}
    return [str(item) for item in validation.validate_create({"spec": spec})]


def test_attributes_describe_the_hardware():
    addresses = tuple(map(ip_interface, ("10.0.0.2/24", "fd00::2/64", "fe80::1/64", "10.0.0.1/24")))
    result = attributes(Facts(LINK, NIC, NIC, addresses, 100_000, Rdma("mlx5_0"), Programs(tcx=("b", "a", "b"))))
    assert result == {
        "interface": "eth1", "kind": "physical", "mac": "02:00:00:00:00:01", "mtu": 9000, "speed": 100_000,
        "carrier": True, "ipv4": "10.0.0.1/24,10.0.0.2/24", "ipv6": "fd00::2/64", "driver": "mlx5_core",
        "pciAddress": "0000:3b:00.0", "pciVendor": "0x15b3", "pciDevice": "0x1017", "numaNode": 1, "sriov": True,
        "sriovVfs": 2, "isSriovVf": False, "sriovPf": None, "rdma": True, "rdmaDevice": "mlx5_0", "ebpf": True,
        "tcPrograms": None, "tcxPrograms": "a,b",
        "alias": None, "virtual": False, "shared": False, "resource.kubernetes.io/pcieRoot": "pci0000:3a",
        "resource.kubernetes.io/numaNode": 1,
    }  # fmt: skip


def test_virtual_function_names_its_physical_function():
    result = attributes(Facts(LINK, Hardware("mlx5_core", "0000:3b:00.2", parent="0000:3b:00.0")))
    assert (result["isSriovVf"], result["sriovPf"], result["sriov"]) == (True, "0000:3b:00.0", False)


@pytest.mark.parametrize(
    ("programs", "ebpf", "tc", "tcx"),
    [
        pytest.param(Programs(), False, None, None, id="none"),
        pytest.param(Programs(xdp=True), True, None, None, id="xdp"),
        pytest.param(Programs(tc=("out", "in")), True, "in,out", None, id="tc"),
        pytest.param(Programs(tcx=tuple(f"program-{number}xxxxx" for number in range(9))), True, None,
                     "program-0xxxxx,program-1xxxxx,program-2xxxxx,program-3xxxxx", id="many"),
    ],
)  # fmt: skip
def test_attributes_name_the_ebpf_programs_of_a_link(programs, ebpf, tc, tcx):
    result = attributes(Facts(LINK, programs=programs))
    assert (result["ebpf"], result["tcPrograms"], result["tcxPrograms"]) == (ebpf, tc, tcx)


def test_a_link_made_on_hardware_has_its_place_and_is_virtual():
    result = attributes(Facts(LINK._replace(kind="macvlan"), place=NIC))
    assert (result["resource.kubernetes.io/pcieRoot"], result["numaNode"], result["virtual"]) == ("pci0000:3a", 1, True)
    assert (result["pciAddress"], result["driver"]) == (None, None)


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ([], None),
        (["169.254.1.1/16", "127.0.0.1/8", "fe80::1/64", "::1/128"], None),
        (["10.0.0.2/24", "10.0.0.1/24", "10.0.0.2/24"], "10.0.0.1/24,10.0.0.2/24"),
        (
            [f"192.168.100.{number}/24" for number in range(100, 105)],
            "192.168.100.100/24,192.168.100.101/24,192.168.100.102/24",
        ),
        (["2001:db8:1111:2222:3333:4444:5555:6666/64"] * 2, "2001:db8:1111:2222:3333:4444:5555:6666/64"),
        (
            ["2001:db8:1111:2222:3333:4444:5555:6666/64", "2001:db8:1111:2222:3333:4444:5555:7777/64"],
            "2001:db8:1111:2222:3333:4444:5555:6666/64",
        ),
    ],
)
def test_addresses_are_cut_between_two_of_them(addresses, expected):
    given = tuple(map(ip_interface, addresses))
    result = attributes(Facts(LINK, addresses=given))
    assert [item for item in (result["ipv4"], result["ipv6"]) if item] == ([expected] if expected else [])
    assert expected is None or len(expected.encode()) <= 64


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("alias", "x" * 65, "65 bytes, more than 64"),
        ("alias", "ü" * 33, "66 bytes"),
        ("alias", "broken \ufffd", "is not valid UTF-8"),
        ("alias", "two\nlines", "cannot be shown"),
        ("alias", "nul\0", "cannot be shown"),
        ("speed", 2**63, "too large"),
        ("9lives", "x", "is not a valid attribute name"),
        ("a-b", "x", "is not a valid attribute name"),
        ("x" * 33, "x", "is not a valid attribute name"),
        ("mtu", 1.5, "is not a string, integer"),
    ],
)
def test_one_bad_attribute_costs_itself_only(name, value, why):
    good, bad = published({"interface": "eth1", name: value})
    assert good == {"interface": {"string": "eth1"}}
    assert list(bad) == [name]
    assert why in bad[name]


def test_attributes_beyond_the_most_are_left_out():
    good, bad = published({f"a{number}": number for number in range(40)})
    assert len(good) == 30
    assert "no more than 32" in bad["a39"]


@pytest.mark.parametrize(
    ("parent", "speed", "expected"),
    [
        pytest.param(None, None, {}, id="nobody knows how fast"),
        pytest.param(None, 10_000, {"bandwidth": {"value": "10G"}}, id="a whole link has its speed"),
        pytest.param(None, 2_500, {"bandwidth": {"value": "2500M"}}, id="as people write it"),
    ],
)
def test_a_whole_link_has_its_speed(parent, speed, expected):
    assert capacity(Facts(LINK, speed=speed, parent=parent)) == expected


SLOTS = {"value": "16", "requestPolicy": {"default": "1", "validValues": ["1"]}}


@pytest.mark.parametrize(
    ("parent", "speed", "value", "default"),
    [
        pytest.param(Shared(interface="b"), None, None, None, id="a bridge whose speed nobody knows"),
        pytest.param(Shared(interface="b"), 10_000, "10G", "625M", id="evenly among the slots"),
        pytest.param(Shared(interface="b", bandwidth=4_000_000), 10_000, "4M", "1M", id="what the config says"),
        pytest.param(Shared(interface="b", bandwidth=2_500_500), None, "2500500", "1M", id="an odd number"),
    ],
)
def test_a_shared_link_has_slots_and_bandwidth(parent, speed, value, default):
    expected = {"slots": SLOTS}
    if value:
        policy = {"default": default, "validRange": {"min": "1M", "step": "1M"}}
        expected = {"bandwidth": {"value": value, "requestPolicy": policy}, **expected}
    facts = Facts(LINK, speed=speed, parent=parent)
    assert capacity(facts) == expected
    assert refusals(entry("b", facts, {})) == []


TEXTS = st.text(max_size=80)


@given(
    name=TEXTS, alias=TEXTS, driver=TEXTS, vendor=TEXTS, kind=TEXTS, numa=st.none() | st.integers(),
    speed=st.none() | st.integers(1, 2**32), slots=st.none() | st.integers(1, 4096),
    bandwidth=st.none() | st.integers(1_000_000, 2**60), taint=st.booleans(),
)  # fmt: skip
def test_attributes_of_any_link_are_valid_in_the_api(
    name, alias, driver, vendor, kind, numa, speed, slots, bandwidth, taint
):
    link = LINK._replace(name=name, alias=alias, kind=kind)
    hardware = Hardware(driver, vendor, numa, vendor, vendor, vendor, vendor)
    parent = Shared(interface="x", slots=slots, bandwidth=bandwidth) if slots else None
    facts = Facts(link, hardware, hardware, speed=speed, parent=parent)
    good, _ = published(attributes(facts))
    device = entry("eth1", facts, good)
    assert refusals(tainted(device, NO_CARRIER, "NoSchedule", 1e9) if taint else device) == []


@pytest.mark.parametrize(
    ("count", "taints", "sizes"),
    [(0, 0, [0]), (1, 0, [1]), (128, 0, [128]), (129, 0, [128, 1]), (64, 1, [64]), (129, 1, [64, 64, 1])],
)
def test_devices_are_split_in_order(count, taints, sizes):
    devices = [{"name": f"d{number}"} for number in range(count)]
    devices[:taints] = [tainted(device, NO_CARRIER, "NoSchedule", 1e9) for device in devices[:taints]]
    found = split(devices)
    assert [len(item) for item in found] == sizes
    assert [item for part in found for item in part] == devices


def test_taint_has_the_time_when_it_was_added():
    taints = tainted({"name": "d"}, NO_CARRIER, "NoExecute", 1_800_000_000.7)["taints"]
    assert taints == [{"key": "net.podwire.dev/no-carrier", "effect": "NoExecute", "timeAdded": "2027-01-15T08:00:00Z"}]
