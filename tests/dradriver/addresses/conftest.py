"""A link of two ends in their own namespaces, and a small DHCP server at the far one. The packets are real."""

from contextlib import contextmanager
from ipaddress import ip_interface
from types import SimpleNamespace

import pytest

from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.linux.values import Veth
from tests.dhcp_server import SERVER, Server, Squatter


@pytest.fixture
def lan(tmp_path):
    """`host` has the link `nic`, `server` the link `srv` with an address; `pod` is empty yet."""
    made = KernelNamespaces(tmp_path / "ns")
    try:
        host, server, pod = (made.create(name).path for name in ("host", "server", "pod"))
        with KernelNetwork(host) as near:
            near.links.add(Veth("nic", "srv", server, up=True))
            nic = near.links.get("nic")
        with KernelNetwork(server) as far:
            far.links.change("srv", up=True)
            far.addresses.add(far.links.get("srv").ifindex, ip_interface(f"{SERVER}/24"))
        yield SimpleNamespace(host=host, server=server, pod=pod, ifindex=nic.ifindex, mac=nic.mac)
    finally:
        for item in made.list():
            made.remove(item.name)


@pytest.fixture
async def server(lan):
    server = Server(lan.server)
    yield server
    server.close()


@pytest.fixture
async def squatter(lan):
    """Takes the address that a test names."""
    made = []

    def take(ip):
        made.append(Squatter(lan.server, ip))

    yield take
    for item in made:
        item.close()


@pytest.fixture
def moved(lan):
    """Moves the link into the pod and gives it an address there."""

    def move(lease, name="net1"):
        with KernelNetwork(lan.host) as host:
            host.links.move("nic", lan.pod, name)
        with KernelNetwork(lan.pod) as pod:
            pod.links.change(name, up=True)
            pod.addresses.add(pod.links.get(name).ifindex, lease.address)
            return pod.links.get(name).ifindex

    return move


@pytest.fixture
def serve():
    """Opens a server on a link of the calling thread's own namespace: `with serve("lan1p") as server:`."""

    @contextmanager
    def open_(link):
        opened = Server(None, link)
        try:
            yield opened
        finally:
            opened.close()

    return open_
