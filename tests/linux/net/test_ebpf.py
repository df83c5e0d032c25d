"""Programs that do nothing, put on links, are seen there by name."""

import ctypes
import os
from struct import Struct

import pytest

from podwire.linux.net import bpf, ebpf
from podwire.linux.net.netlink import Netlink
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.wire import CREATE, EXCL, Request, nested, text, u32
from podwire.linux.values import Ifb, Veth

CLASSIFIER, XDP = 3, 6
LOAD, ATTACH = 5, 8
INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
TC = Struct("=BxxxiIII")


@pytest.fixture
def program():
    """Loads one: r0 = 0; exit. For classifiers that lets packets pass."""
    held = []

    def load(kind, name=b""):
        code = ctypes.create_string_buffer(
            Struct("=BBhi").pack(0xB7, 0, 0, 0) + Struct("=BBhi").pack(0x95, 0, 0, 0), 16
        )
        licence = ctypes.create_string_buffer(b"GPL")
        asked = Struct("=IIQQ24x16s").pack(kind, 2, ctypes.addressof(code), ctypes.addressof(licence), name)
        held.append(bpf.call(LOAD, asked, "load a program")[0])
        return held[-1]

    yield load
    for item in held:
        os.close(item)


def with_classifier(netlink, index, descriptor, parent, name):
    head = TC.pack(0, index, 0xFFFF0000, 0xFFFFFFF1, 0)
    netlink.do(Request(36, CREATE, head + text(1, "clsact"), "add clsact", {}))
    options = nested(2, u32(6, descriptor), *([text(7, name)] if name else []), u32(8, 1))
    head = TC.pack(0, index, 0, parent, 1 << 16 | 0x0300)  # the first, for every protocol
    netlink.do(Request(44, CREATE | EXCL, head + text(1, "bpf") + options, "add a classifier", {}))


def test_links_without_programs_have_none(kernel):
    with KernelNetwork() as network, Netlink() as netlink:
        network.links.add(Veth("v0", "v1"))
        network.links.add(Ifb("i0"))
        network.traffic.redirect(network.links.get("v0").ifindex, network.links.get("i0").ifindex)
        assert ebpf.classifiers(netlink) == {}
        assert ebpf.tcx(network.links.get("v0").ifindex) == []
        assert not network.links.get("v0").xdp


@pytest.mark.parametrize("name", ["who:[put it there]", ""], ids=["named", "unnamed"])
@pytest.mark.parametrize("parent", [INGRESS, EGRESS], ids=["what comes in", "what leaves"])
def test_a_classifier_is_seen(kernel, program, parent, name):
    with KernelNetwork() as network, Netlink() as netlink:
        network.links.add(Veth("v0", "v1"))
        index = network.links.get("v0").ifindex
        with_classifier(netlink, index, program(CLASSIFIER, b"counts"), parent, name)
        assert ebpf.classifiers(netlink) == {index: [name or "counts"]}


def test_all_classifiers_of_a_link_are_seen(kernel, program):
    with KernelNetwork() as network, Netlink() as netlink:
        network.links.add(Veth("v0", "v1"))
        index = network.links.get("v0").ifindex
        for parent, name in ((INGRESS, "in"), (EGRESS, "out")):
            with_classifier(netlink, index, program(CLASSIFIER), parent, name)
        assert ebpf.classifiers(netlink) == {index: ["in", "out"]}


@pytest.mark.parametrize("where", bpf.TCX, ids=["what comes in", "what leaves"])
def test_tcx_is_seen(kernel, program, where):
    with KernelNetwork() as network:
        network.links.add(Veth("v0", "v1"))
        index = network.links.get("v0").ifindex
        bpf.call(ATTACH, Struct("=IIII").pack(index, program(CLASSIFIER, b"counts"), where, 0), "attach")
        assert ebpf.tcx(index) == ["counts"]
        assert ebpf.tcx(network.links.get("v1").ifindex) == []
        network.links.delete("v0")


def test_program_without_a_name_is_listed_by_its_number(kernel, program):
    with KernelNetwork() as network:
        network.links.add(Veth("v0", "v1"))
        index = network.links.get("v0").ifindex
        bpf.call(ATTACH, Struct("=IIII").pack(index, program(CLASSIFIER), bpf.TCX[0], 0), "attach")
        (name,) = ebpf.tcx(index)
        assert name.startswith("#")
        assert name[1:].isdecimal()


def test_a_program_that_is_gone_is_known_by_its_number_too():
    assert bpf.name_of(0xFFFFFFF0) == "#4294967280"


def test_deleted_link_has_no_programs(kernel):
    assert ebpf.tcx(99) == []


def test_xdp_is_a_field_of_the_link(kernel, program):
    with KernelNetwork() as network, Netlink() as netlink:
        network.links.add(Veth("v0", "v1"))
        index = network.links.get("v0").ifindex
        body = Struct("=BxHiII").pack(0, 0, index, 0, 0) + nested(43, u32(1, program(XDP)))
        netlink.do(Request(19, 0, body, "attach to a link", {}))
        assert network.links.get("v0").xdp
        assert not network.links.get("v1").xdp
