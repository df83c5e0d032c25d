"""VXLAN links and the machines behind them, on the kernel."""

from ipaddress import ip_address

import pytest

from podwire.linux import errors
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Station, Vxlan

LOCAL, OTHER = ip_address("127.0.0.1"), ip_address("192.0.2.7")


def test_a_station_is_added_listed_moved_and_deleted(kernel):
    with KernelNetwork() as network:
        network.links.change("lo", up=True)
        network.links.add(
            Vxlan(
                "vx7",
                7,
                LOCAL,
                network.links.get("lo").ifindex,
                mtu=1450,
                mac="0a:58:7f:00:00:01",
                alias="tag",
                up=True,
            )
        )
        link = network.links.get("vx7")
        assert (link.kind, link.mtu, link.mac, link.alias, link.up) == ("vxlan", 1450, "0a:58:7f:00:00:01", "tag", True)
        station = Station(link.ifindex, "0a:58:c0:00:02:07", OTHER)
        network.stations.replace(station)
        assert network.stations.list(link.ifindex) == [station]
        assert network.stations.list(1) == []
        network.stations.delete(station)
        assert network.stations.list(link.ifindex) == []
        with pytest.raises(errors.NoSuchNeighbour):
            network.stations.delete(station)
        with pytest.raises(errors.NoSuchLink):
            network.stations.replace(station._replace(ifindex=4711))
