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
