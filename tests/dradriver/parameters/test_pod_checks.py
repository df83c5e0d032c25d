"""Interfaces of one pod that get along, and those that do not."""

from ipaddress import ip_address, ip_interface, ip_network

import pytest

from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.parameters.pod_checks import check_pod_interfaces
from podwire.dradriver.parameters.settings import Made, Route, Rule, Settings, Vrf

NET = ip_network("10.0.0.0/8")
MACVLAN = Made(kind="macvlan", mode="bridge")
LEADS = Route(destination=NET, scope=253, table=100)
TEN = Rule(priority=10, table=100, source=NET)


def interface(name, **more):
    return Settings(name=name, made=MACVLAN, **more)


FINE = {
    "none": (),
    "one": (interface("net1"),),
    "two with names of their own": (interface("net1"), interface("net2")),
    "two devices without a network interface": (Settings(name=""), Settings(name="")),
    "two in one VRF": (interface("a", vrf=Vrf(name="red", table=7)), interface("b", vrf=Vrf(name="red", table=7))),
    "one address in two VRFs": (
        interface("a", addresses=(ip_interface("10.9.0.2/24"),), vrf=Vrf(name="red", table=7)),
        interface("b", addresses=(ip_interface("10.9.0.2/24"),), vrf=Vrf(name="blue", table=8)),
    ),
    "two ways to one place, one of them second": (
        interface("a", routes=(Route(destination=NET, scope=253),)),
        interface("b", routes=(Route(destination=NET, scope=253, metric=10),)),
    ),
    "a rule of one to a table of the other": (interface("a", rules=(TEN,)), interface("b", routes=(LEADS,))),
    "a rule to the main table": (interface("a", rules=(Rule(priority=10, table=254, source=NET),)),),
    "a rule to what a whole device may bring along": (
        interface("a", rules=(TEN,)),
        Settings(name="b", routes=(Route(destination=NET, scope=253),)),
    ),
}
REFUSED = {
    "one name": ((interface("net1"), interface("net1")), "interface.name", 'first has "net1"'),
    "a VRF called as an interface": (
        (interface("a"), interface("b", vrf=Vrf(name="a", table=7))),
        "interface.vrf.name",
        'first has an interface "a"',
    ),
    "one VRF, two tables": (
        (interface("a", vrf=Vrf(name="red", table=7)), interface("b", vrf=Vrf(name="red", table=8))),
        "interface.vrf.table",
        "first has VRF red with table 7",
    ),
    "two VRFs, one table": (
        (interface("a", vrf=Vrf(name="red", table=7)), interface("b", vrf=Vrf(name="blue", table=7))),
        "interface.vrf.table",
        "first has table 7 for VRF red",
    ),
    "one address": (
        (
            interface("a", addresses=(ip_interface("10.9.0.2/24"),)),
            interface("b", addresses=(ip_interface("10.9.0.3/24"), ip_interface("10.9.0.2/16"))),
        ),
        "interface.addresses[1]",
        "first has the address 10.9.0.2",
    ),
    "one route": (
        (
            interface("a", routes=(Route(destination=NET, scope=253),)),
            interface("b", routes=(Route(destination=NET, gateway=ip_address("10.9.0.1")),)),
        ),
        "routes[0]",
        "first has a route to 10.0.0.0/8 in table 254 with metric 0",
    ),
    "one rule": (
        (interface("a", rules=(TEN,), routes=(LEADS,)), interface("b", rules=(TEN,))),
        "rules[0]",
        "first has the rule of priority 10",
    ),
    "a rule to nowhere": (
        (interface("a"), interface("b", rules=(TEN,))),
        "rules[0].table",
        "no route of this pod is in table 100",
    ),
}


def named(interfaces):
    return list(zip(("first", "second"), interfaces, strict=False))


@pytest.mark.parametrize("interfaces", FINE.values(), ids=list(FINE))
def test_these_get_along(interfaces):
    check_pod_interfaces(named(interfaces))


@pytest.mark.parametrize(("interfaces", "field", "reason"), REFUSED.values(), ids=list(REFUSED))
def test_these_do_not(interfaces, field, reason):
    with pytest.raises(Refused) as refused:
        check_pod_interfaces(named(interfaces))
    assert refused.value.field == f"second: {field}"
    assert reason in refused.value.reason


def test_two_devices_of_one_request_are_two():
    both = (interface("net1"), interface("net1"))
    with pytest.raises(Refused, match=r'nic: interface\.name: nic has "net1" in this pod too'):
        check_pod_interfaces([("nic", item) for item in both])
