from ipaddress import ip_network

from podwire.cluster.up import conflist
from podwire.cluster.up.slots import Slot
from podwire.cniplugins.bridge.spoofing import Guard, parse_guard
from podwire.runtime.cni.conflists import Conflists

RANGES = Slot(3).pod_ranges(1, ipv6=True)


def test_the_default_network_is_one_that_the_runtime_reads(tmp_path):
    conflist.write(tmp_path / "net.d", RANGES)
    network = Conflists(tmp_path / "net.d").default()
    assert network is not None
    assert network.name == "podwire"
    assert [plugin["type"] for plugin in network.plugins] == ["bridge", "portmap"]
    assert network.plugins[0]["ipam"]["ranges"] == [[{"subnet": str(subnet)}] for subnet in RANGES]


def test_a_foreign_network_configuration_is_kept(tmp_path):
    (tmp_path / "05-theirs.conflist").write_text("{}")
    conflist.write(tmp_path, RANGES)
    assert [path.name for path in tmp_path.iterdir()] == ["05-theirs.conflist"]
    assert conflist.foreign(tmp_path) == [tmp_path / "05-theirs.conflist"]


def test_ours_follows_the_ranges(tmp_path):
    conflist.write(tmp_path, RANGES)
    conflist.write(tmp_path, (ip_network("10.9.0.0/24"),))
    assert "10.9.0.0/24" in (tmp_path / conflist.NAME).read_text()
    assert conflist.foreign(tmp_path) == []


def test_there_is_a_route_for_each_family():
    [bridge, _] = conflist.network(RANGES)["plugins"]
    assert bridge["ipam"]["routes"] == [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]


def test_the_default_network_has_spoof_checks():
    [bridge, _] = conflist.network(RANGES)["plugins"]
    assert parse_guard(bridge) == Guard(mac=True, ip=True)
