"""Attributes of a link in sysfs, from trees of files that stand for machines; and what the kernel reports beside it."""

from pathlib import Path

import pytest

from podwire.linux.net.link_speeds import Speeds
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysfs import Hardware, Rdma, Sysfs
from podwire.linux.values import Bridge, Veth

PHYSICAL, VIRTUAL = "0000:3b:00.0", "0000:3b:00.2"


def written(place: Path, **files: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, line in files.items():
        (place / name).write_text(f"{line}\n")


def linked(place: Path, target: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A card of two functions below a bridge: eth0 is the physical one, eth0v0 a virtual one."""
    root = tmp_path / "sys"
    bridge = root / "devices/pci0000:3a/0000:3a:00.0"
    for name, address in (("eth0", PHYSICAL), ("eth0v0", VIRTUAL)):
        device = bridge / address
        written(device, vendor="0x15b3", device="0x1017", numa_node="1")
        linked(device / "subsystem", root / "bus/pci")
        linked(device / "driver", root / "bus/pci/drivers/mlx5_core")
        written(
            device / "net" / name, address="02:00:00:00:00:01", ifindex="7", mtu="9000", speed="100000", dev_port="0"
        )
        linked(device / "net" / name / "device", device)
        linked(root / "class/net" / name, device / "net" / name)
    written(bridge / PHYSICAL, sriov_totalvfs="8", sriov_numvfs="1")
    linked(bridge / VIRTUAL / "physfn", bridge / PHYSICAL)
    return root


def test_physical_function_is_described(machine):
    assert Sysfs(machine).hardware("eth0") == Hardware(
        "mlx5_core", PHYSICAL, 1, "", "0x15b3", "0x1017", "pci0000:3a", "", total_vfs=8, vfs=1
    )


def test_virtual_function_has_its_parent(machine):
    assert Sysfs(machine).hardware("eth0v0") == Hardware(
        "mlx5_core", VIRTUAL, 1, PHYSICAL, "0x15b3", "0x1017", "pci0000:3a", "eth0"
    )


def test_speed_and_mtu(machine):
    sysfs = Sysfs(machine)
    assert (sysfs.speed("eth0"), sysfs.mtu("eth0")) == (100_000, 9000)
    assert (sysfs.speed("eth9"), sysfs.mtu("eth9")) == (None, None)


@pytest.mark.parametrize("speed", ["-1", "0", "4294967295", "", "fast", "99999999999999999999999"])
def test_unknown_speed_is_none(machine, speed):
    written(machine / "class/net/eth0", speed=speed)
    assert Sysfs(machine).speed("eth0") is None


def test_a_link_of_another_namespace_is_not_ours(machine):
    sysfs = Sysfs(machine)
    assert sysfs.knows("eth0", 7, "02:00:00:00:00:01")
    assert not sysfs.knows("eth0", 7, "02:00:00:00:00:02")
    assert not sysfs.knows("eth0", 8, "02:00:00:00:00:01")
    assert not sysfs.knows("eth9", 7, "02:00:00:00:00:01")


def test_sysfs_without_an_index_is_believed(machine):
    for name in ("address", "ifindex"):
        (machine / "class/net/eth0" / name).unlink()
    assert Sysfs(machine).knows("eth0", 99, "02:00:00:00:00:99")


def test_the_rdma_device_of_a_link_and_its_files(machine):
    device = machine / "class/net/eth0/device"
    (device / "infiniband/mlx5_0").mkdir(parents=True)
    written(device / "infiniband_verbs/uverbs0", ibdev="mlx5_0")
    assert Sysfs(machine).rdma("eth0") == Rdma("mlx5_0", ("/dev/infiniband/uverbs0",))
    (machine / "class/misc/rdma_cm").mkdir(parents=True)
    assert Sysfs(machine).rdma("eth0").character_devices == ("/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm")
    assert Sysfs(machine).rdma("eth0v0") == Rdma()


def test_of_two_rdma_devices_on_one_card_the_links_own_is_taken(machine):
    device = machine / "class/net/eth0/device"
    for number, link in ((0, "eth7"), (1, "eth0")):
        written(device / f"infiniband/mlx4_{number}/ports/1/gid_attrs/ndevs", **{"0": link})
        written(device / f"infiniband_verbs/uverbs{number}", ibdev=f"mlx4_{number}")
    assert Sysfs(machine).rdma("eth0") == Rdma("mlx4_1", ("/dev/infiniband/uverbs1",))


def test_odd_files_are_not_there(machine):
    device = machine / "class/net/eth0/device"
    for name in ("numa_node", "vendor", "sriov_totalvfs"):
        (device / name).unlink()
        (device / name).mkdir()
    (device / "sriov_numvfs").write_bytes(b"\xff\xfe\0\0")
    found = Sysfs(machine).hardware("eth0")
    assert (found.numa, found.vendor, found.total_vfs, found.vfs) == (None, "", 0, 0)


@pytest.mark.parametrize("link", ["", "..", "../net/eth0", "a/b", "nothing"])
def test_missing_link_has_no_hardware(machine, link):
    assert Sysfs(machine).hardware(link) == Hardware()
    assert Sysfs(machine).rdma(link) == Rdma()


def test_a_root_that_is_not_there(tmp_path):
    assert Sysfs(tmp_path / "nowhere").hardware("eth0") == Hardware()


def test_ethtool_reports_link_speeds(kernel):
    with KernelNetwork() as network, Speeds() as speeds:
        network.links.add(Bridge("br0", up=True))
        network.links.add(Veth("v0", "v1", up=True))
        assert speeds.of("v0") == 10_000
        assert [speeds.of(name) for name in ("br0", "lo", "nothing")] == [None, None, None]


def test_speeds_are_those_of_the_namespace_that_was_named(kernel, tmp_path):
    pod = kernel.namespaces(tmp_path).create("pod").path
    with KernelNetwork() as network, Speeds(pod) as there, Speeds() as here:
        network.links.add(Veth("v0", "v1", pod))
        assert (here.of("v0"), here.of("v1"), there.of("v0"), there.of("v1")) == (10_000, None, None, 10_000)
    kernel.namespaces(tmp_path).remove("pod")
