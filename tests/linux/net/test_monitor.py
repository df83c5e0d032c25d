"""What the kernel tells of changes, heard by a socket in the namespace where they happen."""

import errno
import os
import socket
from ipaddress import IPv4Interface, IPv4Network, IPv6Interface, ip_address

import pytest

from podwire.linux import errors
from podwire.linux.net import monitor
from podwire.linux.net.monitor import Changed, Monitor, messages
from podwire.linux.net.netlink import NETFILTER
from podwire.linux.net.network import KernelNetwork
from podwire.linux.net.sysctls import KernelSysctls
from podwire.linux.net.wire import HEADER
from podwire.linux.nft.table import KernelElements, KernelRuleset
from podwire.linux.nft.values import Element
from podwire.linux.values import Bridge, Route, Rule, Veth

ANYWHERE = IPv4Network("0.0.0.0/0")


def heard(hearing: Monitor) -> list[tuple[str, bool]]:
    """Each kind of change once, in order."""
    return list(dict.fromkeys((each.what, each.gone) for each in hearing.read()))


@pytest.fixture
def hearing(kernel):
    """Opened by the test, in its own thread's namespace, and closed for it."""
    opened = []

    def open_(*args, **keys):
        opened.append(Monitor(*args, **keys))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


def test_links_addresses_routes_and_rules_have_events(kernel, hearing):
    told = hearing()
    with KernelNetwork() as network:
        network.links.add(Bridge("br0", up=True))
        index = network.links.get("br0").ifindex
        assert (monitor.LINK, False) in heard(told)
        network.addresses.add(index, IPv4Interface("10.0.0.1/24"))
        assert (monitor.ADDRESS, False) in heard(told)
        route = Route(ANYWHERE, ip_address("10.0.0.2"), index)
        network.routes.replace(route)
        assert told.read() == [Changed(monitor.NEXT_HOP, False, index)]
        network.routes.delete(route)
        assert told.read() == [Changed(monitor.NEXT_HOP, True, index)]
        network.rules.add(Rule(100, 7))
        assert heard(told) == [(monitor.RULE, False)]
        network.rules.delete(Rule(100, 7))
        assert heard(told) == [(monitor.RULE, True)]
        network.addresses.delete(index, IPv4Interface("10.0.0.1/24"))
        assert (monitor.ADDRESS, True) in heard(told)
        network.links.delete(index)
        gone = [each for each in told.read() if (each.what, each.gone) == (monitor.LINK, True)]
        assert [(each.ifindex, each.link.name) for each in gone] == [(index, "br0")]


def test_event_of_a_link_has_its_new_state(kernel, hearing):
    with KernelNetwork() as network:
        network.links.add(Veth("v0", "v1"))
        told = hearing()
        network.links.change("v0", up=True, alias="mine")
        seen = [each.link for each in told.read() if each.what == monitor.LINK and each.link.name == "v0"]
        assert (seen[-1].up, seen[-1].alias) == (True, "mine")


def test_bridge_port_event_differs_from_a_link_event(kernel, hearing):
    with KernelNetwork() as network:
        network.links.add(Bridge("br0", up=True))
        network.links.add(Veth("v0", "v1", master=network.links.get("br0").ifindex, up=True))
        index = network.links.get("v0").ifindex
        told = hearing()
        network.links.set_port(index, hairpin=True)
        assert {(each.what, each.ifindex) for each in told.read()} == {(monitor.PORT, index)}


def test_derived_changes_have_no_events(kernel, hearing):
    """Link-local addresses come with a link and settle seconds later; local routes come with addresses."""
    with KernelNetwork() as network:
        network.links.add(Veth("v0", "v1", up=True))
        index = network.links.get("v1").ifindex
        told = hearing()
        network.addresses.add(index, IPv6Interface("fe80::7/64"), prefix_route=False)
        assert told.read() == []


def test_sysctls_of_all_links_have_events(kernel, hearing):
    forwarding = KernelSysctls()
    forwarding.write("net.ipv4.ip_forward", "0")
    told = hearing()
    forwarding.write("net.ipv4.ip_forward", "1")
    assert set(told.read()) == {Changed(monitor.PARAMETER)}


def test_monitor_belongs_to_its_namespace(kernel, hearing, tmp_path):
    path = kernel.namespaces(tmp_path / "ns").create("there").path
    told, here = hearing(path), hearing()
    with KernelNetwork(path) as there:
        there.links.change("lo", up=True)
    assert here.read() == []
    assert (monitor.LINK, False) in heard(told)


def test_nft_events_have_element_comments(kernel, hearing):
    told = hearing(protocol=NETFILTER)
    KernelRuleset().apply("add table inet podwire\nadd set inet podwire s { type ipv4_addr; }\n")
    assert heard(told) == [(monitor.RULESET, False)]
    elements = KernelElements()
    pair = [Element(bytes((10, 0, 0, each)), comment=f"token pod{each} eth0") for each in (1, 2)]
    elements.add("s", *pair)
    seen = told.read()
    assert {(each.what, each.gone) for each in seen} == {(monitor.ELEMENT, False)}
    assert sorted(word for each in seen for word in each.comments) == ["token pod1 eth0", "token pod2 eth0"]
    elements.delete("s", pair[0])
    assert told.read() == [Changed(monitor.ELEMENT, True, comments=("token pod1 eth0",))]
    elements.close()
    KernelRuleset().delete_table()
    assert (monitor.RULESET, True) in heard(told)


def test_overflow_is_reported_as_anything(kernel, hearing):
    told = hearing()
    with socket.socket(fileno=os.dup(told.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    with KernelNetwork() as network:
        network.links.change("lo", up=True)
        for number in range(40):
            network.links.change("lo", alias=str(number))
    assert Changed(monitor.ANYTHING) in told.read()
    with KernelNetwork() as network:
        network.links.change("lo", alias="last")
    assert told.read()[-1].link.alias == "last", "it goes on hearing"


def test_missing_namespace_is_a_named_error(kernel, tmp_path):
    with pytest.raises(errors.NoSuchNamespace) as raised:
        Monitor(tmp_path / "none")
    assert raised.value.errno == errno.ENOENT


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 15, HEADER.pack(4, 16, 0, 0, 0), HEADER.pack(0, 16, 0, 0, 0), HEADER.pack(16, 2, 0, 0, 0)],
    ids=["nothing", "half a header", "shorter than its header", "no length", "another kind"],
)
def test_unknown_messages_are_ignored(data):
    assert list(messages(data, monitor._route)) == []
