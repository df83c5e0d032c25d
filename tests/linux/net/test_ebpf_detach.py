"""Programs that do nothing, put on links in all four ways and taken off."""

import ctypes
import os
from struct import Struct

import pytest

from podwire.linux import errors, syscalls
from podwire.linux.net import ebpf
from podwire.linux.net.ebpf_detach import detach_programs
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.wire import Request, nested, u32
from podwire.linux.values import Veth

CLASSIFIER, XDP = 3, 6
TCX_IN, TCX_OUT, ON_XDP = 46, 47, 37
LOAD, ATTACH, LINK = 5, 8, 28
BY_THE_KERNEL = 1 << 1


def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    number = {"x86_64": 321}.get(os.uname().machine, 280)
    return syscalls.syscall(number, "bpf", command, ctypes.addressof(buffer), 128)


def program(kind):
    """r0 = 2; exit. For XDP that lets packets pass."""
    code = ctypes.create_string_buffer(Struct("=BBhi").pack(0xB7, 0, 0, 2) + Struct("=BBhi").pack(0x95, 0, 0, 0), 16)
    licence = ctypes.create_string_buffer(b"GPL")
    return bpf(LOAD, Struct("=IIQQ").pack(kind, 2, ctypes.addressof(code), ctypes.addressof(licence)))


def on_tcx(index, _netlink, held):
    held.append(program(CLASSIFIER))
    for hook in (TCX_IN, TCX_OUT):
        bpf(ATTACH, Struct("=IIII").pack(index, held[-1], hook, 0))


def on_tcx_by_link(index, _netlink, held):
    held.append(program(CLASSIFIER))
    held.append(bpf(LINK, Struct("=IIII").pack(held[-1], index, TCX_IN, 0)))


def on_xdp(index, netlink, held):
    held.append(program(XDP))
    body = Struct("=BxHiII").pack(0, 0, index, 0, 0) + nested(43, u32(1, held[-1]), u32(3, BY_THE_KERNEL))
    netlink.do(Request(19, 0, body, "attach XDP", {}))


def on_xdp_by_link(index, _netlink, held):
    held.append(program(XDP))
    held.append(bpf(LINK, Struct("=IIII").pack(held[-1], index, ON_XDP, BY_THE_KERNEL)))


@pytest.mark.parametrize(
    ("ways", "count"),
    [
        ([], 0),
        ([on_tcx], 2),
        ([on_tcx_by_link], 1),
        ([on_xdp], 1),
        ([on_xdp_by_link], 1),
        ([on_tcx, on_tcx_by_link, on_xdp_by_link], 4),
    ],
    ids=lambda each: " ".join(way.__name__ for way in each) or "none" if isinstance(each, list) else "",
)
def test_programs_are_detached(kernel, ways, count):
    held = []
    try:
        with KernelNetwork() as network, Netlink() as netlink:
            network.links.add(Veth("v0", "v1", up=True))
            index = network.links.get("v0").ifindex
            for item in ways:
                item(index, netlink, held)
            assert bool(ebpf.tcx(index) or network.links.get(index).xdp) == bool(count)
            assert detach_programs(netlink, index) == count
            assert ebpf.tcx(index) == []
            assert not network.links.get(index).xdp
            assert detach_programs(netlink, index) == 0
    finally:
        for item in held:
            os.close(item)


def test_a_link_that_is_not_there_has_no_programs(kernel):
    with Netlink() as netlink, pytest.raises(errors.NoSuchLink):
        detach_programs(netlink, 99)
