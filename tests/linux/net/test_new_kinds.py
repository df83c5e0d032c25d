"""Kinds of links that a kernel may lack: the messages that ask for them, in the kernel's numbers (linux/if_link.h)."""

from ipaddress import ip_address
from struct import pack, unpack_from

import pytest

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.links import KernelLinks, parsed
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.stacked_links import supports
from podwire.linux.net.wire import attribute, nested, text, u16, u32
from podwire.linux.values import Dummy, Ipvlan, Vlan, Vrf, Vxlan

IFLA_MTU, IFLA_IFNAME, IFLA_LINK, IFLA_LINKINFO, IFLA_IFALIAS = 4, 3, 5, 18, 20
KIND, DATA = 1, 2


class Recorder:
    """Takes requests, and sends none."""

    def __init__(self):
        self.requests = []

    def do(self, *requests):
        self.requests += requests


@pytest.mark.parametrize(
    ("new", "kind", "data"),
    [
        pytest.param(Ipvlan("x", 7, "l2", 1400, "tag"), "ipvlan", {1: pack("=H", 0)}, id="ipvlan l2"),
        pytest.param(Ipvlan("x", 7, "l3", 1400, "tag"), "ipvlan", {1: pack("=H", 1)}, id="ipvlan l3"),
        pytest.param(Ipvlan("x", 7, "l3s", 1400, "tag"), "ipvlan", {1: pack("=H", 2)}, id="ipvlan l3s"),
        pytest.param(Vlan("x", 7, 4094, 1400, "tag"), "vlan", {1: pack("=H", 4094)}, id="vlan"),
        pytest.param(Dummy("x", 1400, "tag"), "dummy", None, id="dummy"),
        pytest.param(
            Vxlan("x", 4097, ip_address("192.0.2.1"), 7, 4789, 1400, "", "tag"),
            "vxlan",
            {1: pack("=I", 4097), 3: pack("=I", 7), 4: bytes([192, 0, 2, 1]), 7: b"\0", 15: pack(">H", 4789)},
            id="vxlan",
        ),
        pytest.param(Vrf("x", 1001, "tag", up=True), "vrf", {1: pack("=I", 1001)}, id="vrf"),
    ],
)
def test_link_is_asked_for_and_tagged(new, kind, data):
    recorder = Recorder()
    KernelLinks(recorder).add(new)
    asked, tagged = recorder.requests
    attrs = wire.attributes(asked.body, 16)
    info = wire.attributes(attrs[IFLA_LINKINFO])
    assert attrs[IFLA_IFNAME].rstrip(b"\0") == b"x"
    assert info[KIND] == kind.encode()
    assert (wire.attributes(info[DATA]) if DATA in info else None) == data
    if kind in ("ipvlan", "vlan"):
        assert unpack_from("=I", attrs[IFLA_LINK]) == (7,)
    if kind != "vrf":
        assert unpack_from("=I", attrs[IFLA_MTU]) == (1400,)
    assert wire.attributes(tagged.body, 16)[IFLA_IFALIAS].rstrip(b"\0") == b"tag"


@pytest.mark.parametrize(
    ("kind", "data", "shown"),
    [
        ("ipvlan", u16(1, 0), {"mode": "l2"}),
        ("ipvlan", u16(1, 2), {"mode": "l3s"}),
        ("vlan", u16(1, 5), {"vlan": 5}),
        ("vrf", u32(1, 1001), {"table": 1001}),
        ("macvlan", u32(1, 1), {"mode": "private"}),
    ],
)
def test_link_is_read_with_what_its_kind_has(kind, data, shown):
    info = nested(IFLA_LINKINFO, attribute(KIND, kind.encode()), nested(DATA, data))
    link = parsed(pack("=BxHiII", 0, 0, 3, 0, 0) + text(IFLA_IFNAME, "x") + info)
    assert (link.kind, {key: getattr(link, key) for key in shown}) == (kind, shown)


def test_unknown_mode_of_an_ipvlan_is_refused_before_the_kernel_is_asked():
    recorder = Recorder()
    with pytest.raises(errors.Refused, match="mode 'l4' must be one of l2, l3, l3s"):
        KernelLinks(recorder).add(Ipvlan("x", 7, "l4"))
    assert recorder.requests == []


@pytest.mark.parametrize(
    "new", [Dummy("x"), Ipvlan("x", 1), Vlan("x", 1, 5), Vrf("x", 10)], ids=lambda new: type(new).__name__
)
def test_kernel_without_the_kind_is_named_by_its_option(kernel, host, new):
    network, _ = host("a")
    assert isinstance(network, KernelNetwork)
    if supports(network.netlink, type(new).__name__.lower()):
        pytest.skip("this kernel has the kind")
    with pytest.raises(errors.Unsupported, match="built without CONFIG_"):
        network.links.add(new)
