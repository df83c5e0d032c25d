"""Links that leave and come back before anybody looks: only the kernel's word tells of their journey."""

from contextlib import closing

import pytest

from podwire.deviceplugin.config import config
from podwire.deviceplugin.inventory import Inventory
from podwire.linux.net.link_moves import LinkMoves

NICS = {"name": "pool", "interfaces": {"names": ["nic*"]}}
VETHS = {"name": "pool", "make": {"kind": "veth", "parent": "br0", "count": 1, "prefix": "pv"}}


@pytest.mark.parametrize(
    ("pool", "link"), [pytest.param(NICS, "nic0", id="of the host"), pytest.param(VETHS, "pv0", id="made for pods")]
)
def test_link_that_returns_between_two_looks_is_restored(host, tmp_path, pool, link):
    host.ip("link add nic0 type veth peer name far0")
    host.ip("link add br0 up type bridge")
    stock = Inventory(config({"pools": [pool]}), state=tmp_path / "state", sysfs=tmp_path, cdi=tmp_path / "cdi")
    with closing(stock), closing(LinkMoves()) as travels:
        stock.look()
        stock.held_by_pods({}, stock.asks())
        stock.allocate("pool", [link])
        pod = host.namespaces.create("pod").path
        host.move_in(link, pod)
        host.inside(pod, "ip", "link", "set", "eth0", "mtu", "1234")
        host.move_out(pod, "eth0", link)
        assert host.ip(f"link show {link}")[0]["mtu"] == 1234
        stock.look(travels.read())
        assert host.ip(f"link show {link}")[0]["mtu"] == 1500


def test_card_that_returns_before_sysfs_shows_it_is_not_a_second_device(host, tmp_path):
    host.ip("link add nic0 type veth peer name far0")
    card = tmp_path / "sys/devices/pci0000:3a/0000:3b:00.0"
    (card / "net/nic0").mkdir(parents=True)
    (card / "subsystem").symlink_to(tmp_path / "sys/bus/pci")
    (card / "net/nic0/device").symlink_to(card)
    shown = tmp_path / "sys/class/net/nic0"
    shown.parent.mkdir(parents=True)
    shown.symlink_to(card / "net/nic0")
    stock = Inventory(config({"pools": [NICS]}), state=tmp_path / "state", sysfs=tmp_path / "sys", cdi=tmp_path / "cdi")
    with closing(stock), closing(LinkMoves()) as travels:
        stock.look()
        stock.held_by_pods({}, stock.asks())
        stock.allocate("pool", ["0000:3b:00.0"])
        pod = host.namespaces.create("pod").path
        host.move_in("nic0", pod)
        stock.look(travels.read())
        shown.unlink()
        host.move_out(pod, "eth0", "nic0")
        stock.look()  # no event has been read
        assert [device.id for device in stock.devices("pool")] == ["0000:3b:00.0"]
        shown.symlink_to(card / "net/nic0")
        stock.look(travels.read())
        assert [device.id for device in stock.devices("pool")] == ["0000:3b:00.0"]
