"""The netlink socket itself, on the kernel."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path

import pytest

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.wire import Request
from podwire.linux.values import Bridge, Route, Veth


@pytest.fixture
def network(kernel):
    opened = []

    def open_(path=None):
        opened.append(kernel.network(path))
        return opened[-1]

    yield open_
    for item in opened:
        item.close()


def test_error_has_the_kernels_extended_message(kernel, network):
    here = network()
    here.links.change("lo", up=True)
    with pytest.raises(errors.Unreachable, match=r"\(Nexthop has invalid gateway\)"):
        here.routes.add(Route(ip_network("10.0.0.0/8"), ip_address("10.9.9.9"), 1))


def test_a_socket_stays_in_its_namespace(kernel, network, tmp_path):
    path = kernel.namespaces(tmp_path).create("one").path
    there = network(path)
    there.links.add(Bridge("br0"))
    assert [link.name for link in network().links.list()] == ["lo"]
    assert "br0" not in Path("/proc/thread-self/net/dev").read_text()


def test_a_namespace_can_be_given_by_its_descriptor(kernel, tmp_path):
    pinned = kernel.namespaces(tmp_path).create("one")
    descriptor = os.open(pinned.path, os.O_RDONLY)
    with Netlink(descriptor) as netlink:
        os.close(descriptor)
        assert netlink.dump(Request(18, 0, bytes(16), "list links", {}))


def test_each_error_belongs_to_its_request(kernel):
    """Of many requests in one send, those fail that should, and no other."""

    def rename(index: int) -> Request:
        body = wire.U32.pack(0) + wire.U32.pack(index) + bytes(8) + wire.text(20, f"alias of {index}")
        return Request(19, 0, body, f"tag {index}", {19: errors.NoSuchLink})

    with Netlink() as netlink, pytest.raises(errors.NoSuchLink) as failed:
        netlink.do(*(rename(number) for number in (1, 50, 1, 51, 1, 52)))
    assert failed.value.operation == "tag 50"
    assert [item.partition(":")[2].partition(":")[0] for item in failed.value.__notes__] == [" tag 51", " tag 52"]


def test_threads_share_a_socket(kernel, network):
    here = network()

    def work(number: int) -> str:
        here.links.add(Veth(f"a{number}", f"b{number}"))
        found = here.links.get(f"b{number}")
        with pytest.raises(errors.NoSuchLink):
            here.links.get(f"c{number}")
        assert any(link.name == f"a{number}" for link in here.links.list())
        here.links.delete(found.ifindex)
        return found.name

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(12))) == [f"b{number}" for number in range(12)]
    assert [link.name for link in here.links.list()] == ["lo"]


def test_dump_is_consistent_during_changes(kernel, network):
    here, other = network(), network()
    for number in range(40):
        here.links.add(Bridge(f"fixed{number}"))
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            other.links.add(Bridge("passing"))
            other.links.delete("passing")

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(20):
            names = [link.name for link in here.links.list()]
            assert len(set(names)) == len(names)
            assert {f"fixed{number}" for number in range(40)} <= set(names)
    finally:
        stop.set()
        thread.join()


def test_many_links_are_listed(kernel, network):
    here = network()
    with here.batch() as batch:
        for number in range(40):
            batch.links.add(Bridge(f"br{number}", alias=f"podwire:{number}"))
    assert {link.alias for link in here.links.list()} == {"", *(f"podwire:{number}" for number in range(40))}


def test_descriptors_of_namespaces_are_closed_also_when_the_kernel_refuses(kernel, network, tmp_path, descriptors):
    here = network()
    path = kernel.namespaces(tmp_path).create("one").path
    before = descriptors()
    for _ in range(3):
        with pytest.raises(errors.LinuxError):
            here.links.add(Veth("a0", "eth0", path, master=99))
        with pytest.raises(errors.NoSuchLink):
            here.links.move("nothing", path)
    with pytest.raises(errors.Refused):
        here.links.add(Veth("bad%name", "eth0", path))
    assert descriptors() <= before


def test_a_closed_network_is_closed(kernel, network):
    here = network()
    here.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        here.links.list()


def test_without_the_capability_it_is_not_permitted(kernel, tmp_path):
    """A child gives up its capabilities and tries."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setresuid(65534, 65534, 65534)
            kernel.network().links.add(Bridge("br0"))
        except errors.NotPermitted as error:
            code = 7 if error.operation == "add bridge br0" else 8
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_address_does_dad_only_on_request(kernel, network):
    """Duplicate address detection takes a second; without it the address can be used before the call returns."""
    here = network()
    here.links.add(Veth("a0", "a1", up=True))
    here.links.change("a1", up=True)
    index = here.links.get("a0").ifindex
    here.addresses.add(index, ip_interface("fd00::1/64"), dad=True)
    here.addresses.add(index, ip_interface("fd00::2/64"))
    found = {str(address.interface.ip): address.tentative for address in here.addresses.list(index)}
    assert (found["fd00::1"], found["fd00::2"]) == (True, False)
