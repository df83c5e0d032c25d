"""A small real network: a pod and two gateways on one bridge, each a namespace, and TCP between them.

Sockets belong to the namespace in which they are opened, so all of it happens in this one process.
"""

import ctypes
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address, ip_interface
from pathlib import Path

import pytest

from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import KernelNamespaces, visit
from podwire.linux.values import Bridge, Route, Veth

PATIENCE = 30.0
_libc = ctypes.CDLL(None)


@contextmanager
def acting_as(uid: int, gid: int) -> Iterator[None]:
    """Sockets that this thread opens belong to the namespace, as the kernel reports it."""
    _libc.setfsgid(gid)
    _libc.setfsuid(uid)
    try:
        yield
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(0)


class Host:
    """A namespace with a loopback and, once it is plugged in, eth0."""

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, path
        self.network = KernelNetwork(path)
        self.network.links.change("lo", up=True)
        self._servers: list[tuple[socket.socket, threading.Thread]] = []

    def open(self, family: int, kind: int = socket.SOCK_STREAM, *, uid: int = 0, gid: int = 0) -> socket.socket:
        with visit(self.path), acting_as(uid, gid):
            opened = socket.socket(family, kind)
        opened.settimeout(PATIENCE)
        return opened

    def address(self, *addresses: str, link: str = "eth0") -> None:
        index = self.network.links.get(link).ifindex
        for item in addresses:
            self.network.addresses.add(index, ip_interface(item))

    def serve(self, port: int, address: str = "::") -> None:
        """Answer each connection with this host's name and the caller's address, for as long as the test lasts."""
        listening = self.open(socket.AF_INET6)
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind((address, port))
        listening.listen()
        listening.settimeout(None)
        thread = threading.Thread(target=self._answer, args=(listening,), daemon=True)
        thread.start()
        self._servers.append((listening, thread))

    def _answer(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, peer = listening.accept()
            except OSError:
                return
            with connection:
                connection.sendall(f"{self.name} {peer[0].removeprefix('::ffff:')}".encode())

    def connected(self, address: str, port: int, *, source: str = "", uid: int = 0, gid: int = 0, mark: int = 0):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        opened = self.open(family, uid=uid, gid=gid)
        if mark:
            opened.setsockopt(socket.SOL_SOCKET, 36, mark)
        if source:
            opened.bind((source, 0))
        with ExitStack() as undo:
            undo.callback(opened.close)
            opened.connect((address, port))
            undo.pop_all()
        return opened

    def ask(self, address: str, port: int, **how) -> str:
        """The server that answers there."""
        with self.connected(address, port, **how) as opened:
            parts = []
            while part := opened.recv(1000):
                parts.append(part)
            return b"".join(parts).decode()

    def close(self) -> None:
        for listening, thread in self._servers:
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()
            thread.join(PATIENCE)
        self.network.close()


class Lab:
    """Hosts on one bridge; `pod` is 10.1.0.5 and fd01::5, the gateways are .1 and .2."""

    def __init__(self, directory: Path) -> None:
        self._namespaces = KernelNamespaces(directory)
        self._hosts: list[Host] = []
        lan = self.host("lan")
        lan.network.links.add(Bridge("br0", up=True))
        self._bridge = lan.network.links.get("br0").ifindex
        self.lan = lan

    def host(self, name: str) -> Host:
        made = Host(name, self._namespaces.create(name).path)
        self._hosts.append(made)
        return made

    def plugged(self, name: str, *addresses: str, link: str = "eth0") -> Host:
        """A host with a link on the bridge."""
        host = next((host for host in self._hosts if host.name == name), None) or self.host(name)
        self.lan.network.links.add(Veth(f"{name}-{link}", link, host.path, master=self._bridge, up=True))
        host.network.links.change(link, up=True)
        host.address(*addresses, link=link)
        return host

    def close(self) -> None:
        for host in self._hosts:
            host.close()
        for pinned in self._namespaces.list():
            self._namespaces.remove(pinned.name)


@pytest.fixture
def lab(tmp_path) -> Iterator[Lab]:
    made = Lab(tmp_path / "ns")
    yield made
    made.close()


@pytest.fixture
def pod(lab) -> Host:
    """Its default gateway is `first`, as a CNI plugin would have set it."""
    made = lab.plugged("pod", "10.1.0.5/24", "fd01::5/64")
    eth0 = made.network.links.get("eth0").ifindex
    for destination, via in (("0.0.0.0/0", "10.1.0.1"), ("::/0", "fd01::1")):
        made.network.routes.add(Route(ip_interface(destination).network, ip_address(via), eth0))
    return made


@pytest.fixture
def gateways(lab) -> tuple[Host, Host]:
    """Both have the same far addresses: who answers tells which way a packet went."""
    made = lab.plugged("first", "10.1.0.1/24", "fd01::1/64"), lab.plugged("second", "10.1.0.2/24", "fd01::2/64")
    for item in made:
        item.address("10.20.0.1/32", "10.30.0.1/32", "fd20::1/128", "fd30::1/128", link="lo")
        item.serve(80)
    return made
