"""The network with our own plugins, on the real kernel, in a network of its own."""

import asyncio
import socket

from podwire.cniplugins.install import install
from podwire.linux import syscalls
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import KernelNamespaces, in_thread, visit
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.ports import Attachment

MS_REC_PRIVATE = 16384 | 1 << 18


def configure(node, root):
    ipam = {
        "type": "host-local",
        "dataDir": str(root / "ipam"),
        "ranges": [[{"subnet": "10.77.0.0/24"}], [{"subnet": "fd77::/64"}]],
    }
    bridge = {"type": "bridge", "bridge": "pw0", "isDefaultGateway": True, "ipMasq": True, "ipam": ipam}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    for item in (bridge, portmap):
        item["dataDir"] = str(root / "records")
    node.network(bridge, portmap)
    install(str(node.bin), force=True)


def pod(namespaces, name):
    ports = (pb.PortMapping(protocol=pb.TCP, container_port=80, host_port=8080),) if name == "b" else ()
    return Attachment(id=name, netns=namespaces.path(name), name=name, namespace="default", uid=name, ports=ports)


async def live(node, namespaces):
    """Two pods come, speak, and go; in between the runtime is restarted and the configuration is lost."""
    network = node.cni()
    pods = [pod(namespaces, letter) for letter in "ab"]
    a, b = await asyncio.gather(*map(network.attach, pods))
    with visit(pods[1].netns):
        server = socket.create_server(("0.0.0.0", 80))
    with server:
        with visit(pods[0].netns):
            socket.create_connection((b[0], 80), timeout=0.9).close()
        accepted, (peer, _) = server.accept()
        accepted.close()
        assert peer == a[0]
        socket.create_connection(("127.0.0.1", 8080), timeout=0.9).close()
    await network.close()
    for path in node.configs.iterdir():
        path.unlink()
    restarted = node.cni()
    assert await restarted.attached() == {"a", "b"}
    namespaces.remove("b")
    await asyncio.gather(*map(restarted.detach, pods))
    assert await restarted.attached() == set()
    await restarted.close()
    return a, b


def test_pods_live_and_die_on_a_network_of_our_own_plugins(node, tmp_path):
    configure(node, tmp_path)

    def run():
        syscalls.unshare(syscalls.NEWNET | syscalls.NEWNS)
        syscalls.mount(None, "/", None, MS_REC_PRIVATE, None)
        namespaces = KernelNamespaces(tmp_path / "netns")
        for letter in "ab":
            namespaces.create(letter)
        with KernelNetwork() as here:
            here.links.change("lo", up=True)
            addresses = asyncio.run(live(node, namespaces))
            assert {link.name for link in here.links.list()} == {"lo", "pw0"}
        assert {item for pair in addresses for item in pair} == {"10.77.0.2", "10.77.0.3", "fd77::2", "fd77::3"}
        assert all("." in address[0] for address in addresses), "IPv4 first"

    in_thread(run)
    left = [path.name for path in (tmp_path / "ipam/net").iterdir()]
    assert all(item.startswith("l") for item in left)
    assert list((tmp_path / "records").glob("*/*")) == []
    assert list(node.cache.iterdir()) == []
