"""Connections that are forgotten with their address, on the kernel."""

import socket
import time
from ipaddress import ip_address, ip_interface
from pathlib import Path

import pytest

from podwire.linux.net.conntrack import KernelConntrack
from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import visit

RULESET = """
table inet podwire {
    chain incoming { type filter hook input priority 0; ct state new accept; }
}
"""


def send(address: str, source: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as talker:
        talker.bind((source, 0))
        talker.sendto(b"x", (address, port))


def send_surely(address: str, source: str, port: int) -> None:
    """Until it is remembered: a new IPv6 address may not be heard at once."""
    before, until = remembered(), time.monotonic() + 20
    while remembered() == before:
        assert time.monotonic() < until
        send(address, source, port)


def remembered() -> int:
    return int(Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text())


@pytest.mark.parametrize(("one", "two"), [("127.0.0.2", "127.0.0.3"), ("::1", "fd00::2")], ids=["IPv4", "IPv6"])
def test_flush_deletes_connections_of_the_address_only(kernel, tmp_path, one, two):
    path = kernel.namespaces(tmp_path).create("one").path
    network = kernel.network(path)
    network.links.change("lo", up=True)
    if ":" in two:
        network.addresses.add(1, ip_interface(f"{two}/128"))
    kernel.ruleset(path).apply(RULESET)
    conntrack = kernel.conntrack(path)
    with visit(path):
        for port in range(1, 6):
            send_surely(one, one, port)
        send_surely(one, two, 100)
        send_surely(two, one, 101)
        send_surely(two, two, 102)
        assert remembered() == 8
        assert conntrack.flush(ip_address(two)) == 3
        assert remembered() == 5
        assert conntrack.flush(ip_address(two)) == 0
        assert conntrack.flush(ip_address(one)) == 5
        assert remembered() == 0
    conntrack.close()
    network.close()


@pytest.mark.parametrize(("one", "two"), [("127.0.0.2", "127.0.0.3"), ("::1", "fd00::2")], ids=["IPv4", "IPv6"])
def test_forget_deletes_without_a_count(kernel, tmp_path, one, two):
    path = kernel.namespaces(tmp_path).create("one").path
    with KernelNetwork(path) as network:
        network.links.change("lo", up=True)
        network.addresses.add(1, ip_interface(f"{two}/{128 if ':' in two else 32}"))
    kernel.ruleset(path).apply(RULESET)
    conntrack = KernelConntrack(path)
    with visit(path):
        for port in range(1, 6):
            send(one, one, port)
        send(one, two, 100)
        send(two, one, 101)
        conntrack.forget(ip_address(two))
        assert remembered() == 5
        conntrack.forget(ip_address(two))
        assert remembered() == 5
        send("127.0.0.1" if ":" in one else "::1", "127.0.0.1" if ":" in one else "::1", 100)
        conntrack.forget(ip_address(one))
        assert remembered() == 1, "of the other family"
    conntrack.close()


def test_flush_without_connections_returns_zero(kernel, tmp_path):
    conntrack = kernel.conntrack(kernel.namespaces(tmp_path).create("one").path)
    assert conntrack.flush(ip_address("10.0.0.1")) == 0
    conntrack.close()
