"""Netlink events of changes, received by a socket in the namespace where they happen."""

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
    return list(dict.fromkeys((item.what, item.gone) for item in hearing.read()))


@pytest.fixture
def hearing(kernel):
    """Opened by the test, in its own thread's namespace, and closed for it."""
    opened = []

    def open_(*args, **keys):
        opened.append(Monitor(*args, **keys))
        return opened[-1]

    yield open_
    for item in opened:
        item.close()


def test_links_addresses_routes_and_rules_have_events(kernel, hearing):
    events = hearing()
    with KernelNetwork() as network:
        network.links.add(Bridge("br0", up=True))
        index = network.links.get("br0").ifindex
        assert (monitor.LINK, False) in heard(events)
        network.addresses.add(index, IPv4Interface("10.0.0.1/24"))
        assert (monitor.ADDRESS, False) in heard(events)
        route = Route(ANYWHERE, ip_address("10.0.0.2"), index)
        network.routes.replace(route)
        assert events.read() == [Changed(monitor.NEXT_HOP, False, index)]
        network.routes.delete(route)
        assert events.read() == [Changed(monitor.NEXT_HOP, True, index)]
        network.rules.add(Rule(100, 7))
        assert heard(events) == [(monitor.RULE, False)]
        network.rules.delete(Rule(100, 7))
        assert heard(events) == [(monitor.RULE, True)]
        network.addresses.delete(index, IPv4Interface("10.0.0.1/24"))
        assert (monitor.ADDRESS, True) in heard(events)
        network.links.delete(index)
        gone = [item for item in events.read() if (item.what, item.gone) == (monitor.LINK, True)]
        assert [(item.ifindex, item.link.name) for item in gone] == [(index, "br0")]


def test_event_of_a_link_has_its_new_state(kernel, hearing):
    with KernelNetwork() as network:
        network.links.add(Veth("v0", "v1"))
        events = hearing()
        network.links.change("v0", up=True, alias="mine")
        seen = [item.link for item in events.read() if item.what == monitor.LINK and item.link.name == "v0"]
        assert (seen[-1].up, seen[-1].alias) == (True, "mine")


def test_bridge_port_event_differs_from_a_link_event(kernel, hearing):
    with KernelNetwork() as network:
        network.links.add(Bridge("br0", up=True))
        network.links.add(Veth("v0", "v1", master=network.links.get("br0").ifindex, up=True))
        index = network.links.get("v0").ifindex
        events = hearing()
        network.links.set_port(index, hairpin=True)
        assert {(item.what, item.ifindex) for item in events.read()} == {(monitor.PORT, index)}


def test_derived_changes_have_no_events(kernel, hearing):
    """Link-local addresses come with a link and settle seconds later; local routes come with addresses."""
    with KernelNetwork() as network:
        network.links.add(Veth("v0", "v1", up=True))
        index = network.links.get("v1").ifindex
        events = hearing()
        network.addresses.add(index, IPv6Interface("fe80::7/64"), prefix_route=False)
        assert events.read() == []


def test_sysctls_of_all_links_have_events(kernel, hearing):
    forwarding = KernelSysctls()
    forwarding.write("net.ipv4.ip_forward", "0")
    events = hearing()
    forwarding.write("net.ipv4.ip_forward", "1")
    assert set(events.read()) == {Changed(monitor.PARAMETER)}


def test_monitor_belongs_to_its_namespace(kernel, hearing, tmp_path):
    path = kernel.namespaces(tmp_path / "ns").create("there").path
    reported, here = hearing(path), hearing()
    with KernelNetwork(path) as there:
        there.links.change("lo", up=True)
    assert here.read() == []
    assert (monitor.LINK, False) in heard(reported)


def test_nft_events_have_element_comments(kernel, hearing):
    result = hearing(protocol=NETFILTER)
    KernelRuleset().apply("add table inet podwire\nadd set inet podwire s { type ipv4_addr; }\n")
    assert heard(result) == [(monitor.RULESET, False)]
    elements = KernelElements()
    pair = [Element(bytes((10, 0, 0, number)), comment=f"token pod{number} eth0") for number in (1, 2)]
    elements.add("s", *pair)
    seen = result.read()
    assert {(item.what, item.gone) for item in seen} == {(monitor.ELEMENT, False)}
    assert sorted(word for item in seen for word in item.comments) == ["token pod1 eth0", "token pod2 eth0"]
    elements.delete("s", pair[0])
    assert result.read() == [Changed(monitor.ELEMENT, True, comments=("token pod1 eth0",))]
    elements.close()
    KernelRuleset().delete_table()
    assert (monitor.RULESET, True) in heard(result)


def test_overflow_is_reported_as_anything(kernel, hearing):
    events = hearing()
    with socket.socket(fileno=os.dup(events.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    with KernelNetwork() as network:
        network.links.change("lo", up=True)
        for number in range(40):
            network.links.change("lo", alias=str(number))
    assert Changed(monitor.ANYTHING) in events.read()
    with KernelNetwork() as network:
        network.links.change("lo", alias="last")
    assert events.read()[-1].link.alias == "last", "it goes on hearing"


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
