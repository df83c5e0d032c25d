"""A node with pods on a bridge, a second node, and a client outside; all in network namespaces, with real sockets."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address, ip_interface, ip_network

from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.proc.namespaces import KernelNamespaces, visit
from podwire.linux.values import Bridge, Route, Veth
from podwire.proxy.kernel import Kernel
from podwire.proxy.model import Model
from podwire.proxy.program import Settings
from podwire.proxy.topology import Place
from tests.proxy.objects import endpoint

PODS = {"a": 11, "b": 12, "c": 13}
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
SETTINGS = Settings((ip_network("10.1.0.0/24"), ip_network("fd00:1::/64")))


class World:
    """`pod` namespaces are on the bridge of the node; `outside` and `remote` are each at a link of their own."""

    def __init__(self, directory) -> None:
        self._stack = ExitStack()
        self._names = KernelNamespaces(directory)
        self._stack.callback(lambda: [self._names.remove(item.name) for item in self._names.list()])
        self.node = self._create("node")
        self.paths = {"node": self.node}
        self._network = self._stack.enter_context(KernelNetwork(self.node))
        sysctls = KernelSysctls(self.node)
        for name in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
            sysctls.write(name, "1")
        for name in ("iptables", "ip6tables"):
            sysctls.write(f"net.bridge.bridge-nf-call-{name}", "1")
        self._network.links.add(Bridge("br0", mac="02:00:00:00:00:01", up=True))
        self._bridge = self._network.links.get("br0").ifindex
        for entry in ("10.1.0.1/24", "fd00:1::1/64"):
            self._network.addresses.add(self._bridge, ip_interface(entry))
        for name in PODS:
            self._attach(name, bridged=True)
        for name in ("outside", "remote"):
            self._attach(name, bridged=False)
        link = self._network.links.get("h-outside").ifindex
        for version, everywhere in ((4, "0.0.0.0/0"), (6, "::/0")):
            self._network.routes.add(Route(ip_network(everywhere), ip_address(self.ip("outside", version)), link))
        self.kernel = Kernel(self.node)
        self._stack.callback(self.kernel.close)
        self.model = Model(Place("here"))
        self.kernel.replace([], SETTINGS)

    def close(self) -> None:
        self._stack.close()

    def _create(self, name: str) -> str:
        path = self._names.create(name).path
        KernelSysctls(path).write("net.ipv6.conf.default.accept_dad", "0")
        with KernelNetwork(path) as network:
            network.links.change("lo", up=True)
        return path

    def _attach(self, name: str, *, bridged: bool) -> None:
        path = self.paths[name] = self._create(name)
        self._network.links.add(Veth(f"h-{name}", "eth0", path, peer_index=2, up=True))
        host = self._network.links.get(f"h-{name}").ifindex
        if bridged:
            self._network.links.change(host, master=self._bridge)
            self._network.links.set_port(host, hairpin=True)
        else:
            for gateway in self.gateways(name):
                self._network.addresses.add(host, ip_interface(gateway))
        with KernelNetwork(path) as inside, inside.batch() as batch:
            batch.links.change(2, up=True)
            for version, gateway in zip((4, 6), self.gateways(name), strict=True):
                via = ip_interface(gateway)
                batch.addresses.add(2, ip_interface(f"{self.ip(name, version)}/{via.network.prefixlen}"))
                batch.routes.add(Route(ip_network("0.0.0.0/0" if version == 4 else "::/0"), via.ip, 2))

    def gateways(self, name: str) -> tuple[str, str]:
        number = {"outside": 2, "remote": 3}.get(name, 1)
        return f"10.{number}.0.1/24", f"fd00:{number}::1/64"

    def ip(self, name: str, version: int = 4) -> str:
        network, number = {"outside": (2, 10), "remote": (3, 10), "node": (2, 1)}.get(name) or (1, PODS[name])
        return f"10.{network}.0.{number}" if version == 4 else f"fd00:{network}::{number}"

    def endpoint(self, name: str, version: int = 4, **fields):
        return endpoint(self.ip(name, version), "there" if name == "remote" else "here", **fields)

    def tell(self) -> None:
        difference = self.model.difference()
        self.kernel.change(difference.deleted, difference.added)

    def clear(self) -> None:
        self.model = Model(Place("here"))
        self.kernel.replace([], SETTINGS)

    @contextmanager
    def serving(self, *names: str, port: int = 8080) -> Iterator[None]:
        """Answers TCP connections and datagrams with the name of the server and the address of the client."""
        with ExitStack() as stack:
            for name in names:
                for version in FAMILIES:
                    stack.enter_context(self._server(name, version, port))
            yield

    def _bound(self, name: str, version: int, kind: int, port: int) -> socket.socket:
        with visit(self.paths[name]):
            bound = socket.socket(FAMILIES[version], kind)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if version == 6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(("", port))
        return bound

    @contextmanager
    def _server(self, name: str, version: int, port: int) -> Iterator[None]:
        listener, datagrams = (
            self._bound(name, version, kind, port) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
        )
        listener.listen(64)

        def accept() -> None:
            while True:
                try:
                    peer, address = listener.accept()
                except OSError:
                    return
                peer.sendall(f"{name} {ip_address(address[0])}".encode())
                peer.close()

        def receive() -> None:
            while True:
                data, address = datagrams.recvfrom(100)
                if data == b"end":
                    return
                datagrams.sendto(f"{name} {ip_address(address[0])}".encode(), address)

        threads = [threading.Thread(target=work, daemon=True) for work in (accept, receive)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            own = "127.0.0.1" if version == 4 else "::1"
            with visit(self.paths[name]), socket.socket(FAMILIES[version], socket.SOCK_DGRAM) as last:
                last.sendto(b"end", (own, port))
            for thread in threads:
                thread.join(5)
            listener.close()
            datagrams.close()

    def ask(self, client: str, address: str, port: int = 80, source: str = "") -> tuple[str, str]:
        """Returns the server that answered a TCP connection, and the client's address as it saw it. Raises OSError."""
        with visit(self.paths[client]):
            connection = socket.socket(FAMILIES[ip_address(address).version])
        with connection:
            connection.settimeout(1)
            if source:
                connection.bind((source, 0))
            connection.connect((address, port))
            name, _, seen = connection.recv(100).decode().partition(" ")
            return name, seen

    def datagram(self, client: str, address: str, port: int = 80) -> socket.socket:
        """Returns a connected UDP socket."""
        with visit(self.paths[client]):
            connection = socket.socket(FAMILIES[ip_address(address).version], socket.SOCK_DGRAM)
        connection.settimeout(1)
        connection.connect((address, port))
        return connection
