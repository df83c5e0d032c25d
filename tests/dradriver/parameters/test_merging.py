"""Precedence of configuration: classes and claims, field by field, and which configs apply to a device at all."""

from ipaddress import ip_interface

import pytest

from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.parameters.effective import effective
from podwire.dradriver.parameters.settings import Route, Vrf

CLASS = "FromClass"


def link_routes(*destinations):
    return [{"destination": destination, "scope": "link"} for destination in destinations]


MERGED = {
    "a field that only the class says": ({"interface": {"mtu": 9000}}, {}, {"mtu": 9000}),
    "a field that only the claim says": ({}, {"interface": {"mtu": 9000}}, {"mtu": 9000}),
    "a field that both say": ({"interface": {"mtu": 9000}}, {"interface": {"mtu": 1400}}, {"mtu": 1400}),
    "different fields of one group": (
        {"interface": {"mtu": 9000, "forwarding": True}},
        {"interface": {"mac": "02:00:00:00:00:01"}},
        {"mtu": 9000, "forwarding": True, "mac": "02:00:00:00:00:01"},
    ),
    "an explicit zero": ({"interface": {"arpIgnore": 1}}, {"interface": {"arpIgnore": 0}}, {"arp_ignore": 0}),
    "an explicit false": (
        {"interface": {"forwarding": True}},
        {"interface": {"forwarding": False}},
        {"forwarding": False},
    ),
    "DHCP switched off": ({"interface": {"dhcp": True}}, {"interface": {"dhcp": False}}, {"dhcp": False}),
    "an explicit empty text": (
        {"interface": {"addressPool": "blue"}},
        {"interface": {"addressPool": ""}},
        {"pool": ""},
    ),
    "an explicit empty list": (
        {"interface": {"addresses": ["10.9.0.2/24"]}},
        {"interface": {"addresses": []}},
        {"addresses": ()},
    ),
    "nothing said of addresses": ({}, {"interface": {"mtu": 1400}}, {"addresses": None}),
    "a list is replaced as a whole": (
        {"interface": {"addresses": ["10.9.0.2/24", "10.9.0.3/24"]}},
        {"interface": {"addresses": ["10.9.0.4/24"]}},
        {"addresses": (ip_interface("10.9.0.4/24"),)},
    ),
    "no routes instead of the class's": ({"routes": link_routes("10.0.0.0/8")}, {"routes": []}, {"routes": ()}),
    "null takes back what the class says": ({"interface": {"mtu": 9000}}, {"interface": {"mtu": None}}, {"mtu": None}),
    "null takes back a group": (
        {"interface": {"mtu": 9000, "vrf": {"name": "red"}}, "rdma": False},
        {"interface": None},
        {"mtu": None, "vrf": None, "rdma": False},
    ),
    "null in a class says nothing": ({"interface": {"mtu": None}}, {"interface": {"mtu": 1400}}, {"mtu": 1400}),
    "each feature is a field": (
        {"ethtool": {"features": {"gro": False, "lro": False}}},
        {"ethtool": {"features": {"rx-gro": True}}},
        {"features": {"rx-gro": True, "rx-lro": False}},
    ),
    "a feature taken back by another name": (
        {"ethtool": {"features": {"rx-gro": False, "lro": False}}},
        {"ethtool": {"features": {"gro": None}}},
        {"features": {"rx-lro": False}},
    ),
    "all features taken back": (
        {"ethtool": {"features": {"gro": False}, "privateFlags": {"fast": True}}},
        {"ethtool": {"features": None}},
        {"features": {}, "private_flags": {"fast": True}},
    ),
    "the table of a VRF that the class names": (
        {"interface": {"vrf": {"name": "red"}}},
        {"interface": {"vrf": {"table": 77}}},
        {"vrf": Vrf(name="red", table=77)},
    ),
}


@pytest.mark.parametrize(("class_", "claim", "gives"), MERGED.values(), ids=list(MERGED))
def test_class_and_claim_are_merged_field_by_field(class_, claim, gives, said, decide):
    found = decide([said(class_, CLASS), said(claim)])
    assert {name: getattr(found, name) for name in gives} == gives


def test_claim_takes_precedence_wherever_its_config_stands(said, decide):
    found = decide([said({"interface": {"mtu": 1400}}), said({"interface": {"mtu": 9000}}, CLASS)])
    assert found.mtu == 1400


def test_all_configs_apply_and_later_ones_win(said, decide):
    one, two = said({"interface": {"mtu": 1400, "name": "a"}}), said({"interface": {"name": "b"}})
    found = decide(
        [said({"interface": {"mtu": 9000}}, CLASS), said({"interface": {"forwarding": True}}, CLASS), one, two]
    )
    assert (found.mtu, found.name, found.forwarding) == (1400, "b", True)


def test_without_any_config_the_device_stays_as_it_is(decide, devices):
    found = decide([])
    assert (found.name, found.mtu, found.addresses, found.made.kind) == ("eth1", None, None, "")
    with pytest.raises(Refused, match=r"spec\.devices\.config\[\]\.opaque\.parameters\.interface\.kind: is required"):
        decide([], devices["shared"])


ABOUT = {
    "no requests": ((), "nic", True),
    "this request": (("nic",), "nic", True),
    "another request": (("gpu",), "nic", False),
    "the request of this alternative": (("nic",), "nic/fast", True),
    "this alternative": (("nic/fast",), "nic/fast", True),
    "another alternative": (("nic/slow",), "nic/fast", False),
    "one of several": (("gpu", "nic"), "nic", True),
    "one that begins like this one": (("nic",), "nicer", False),
}


@pytest.mark.parametrize(("requests", "request_name", "applies"), ABOUT.values(), ids=list(ABOUT))
def test_a_config_is_about_the_requests_that_it_names(requests, request_name, applies, said, decide):
    found = decide([said({"interface": {"mtu": 1400}}, requests=requests)], request=request_name)
    assert found.mtu == (1400 if applies else None)


def test_parameters_of_other_drivers_are_not_read(said, decide):
    others = said({"interface": "whatever"}, driver="gpu.example.com"), said({"nonsense": 1}, requests=("gpu",))
    assert decide(list(others)).mtu is None


def test_a_wrong_config_is_named_by_where_people_wrote_it(said, decide):
    other, fine, wrong = said({}, driver="gpu.example.com"), said({}), said({"interface": {"mtu": 1}})
    with pytest.raises(Refused) as refused:
        decide([said({}, CLASS), other, fine, fine, wrong])
    assert refused.value.field == "spec.devices.config[3].opaque.parameters.interface.mtu"
    with pytest.raises(Refused) as refused:
        decide([said({}, CLASS), said({}, CLASS, driver="gpu.example.com"), {**wrong, "source": CLASS}, fine])
    assert refused.value.field == "deviceClass net.example spec.config[2].opaque.parameters.interface.mtu"


def test_conflict_names_the_field_of_the_last_config(said, decide):
    class_, claim = said({"interface": {"kind": "macvlan"}}, CLASS), said({"interface": {"vni": 7}})
    with pytest.raises(Refused) as refused:
        decide([class_, claim, said({"interface": {"name": "a"}})])
    assert refused.value.field == "spec.devices.config[0].opaque.parameters.interface.vni"
    with pytest.raises(Refused) as refused:
        decide([class_, said({"interface": {"name": "a"}})])
    assert refused.value.field == "deviceClass net.example spec.config[0].opaque.parameters.interface.kind"


def test_class_may_set_a_field_that_another_of_its_configs_locked(said, decide):
    locks, late = said({"locks": ["interface.mtu"]}, CLASS), said({"interface": {"mtu": 9000}}, CLASS)
    assert decide([locks, late]).mtu == 9000


def test_the_class_is_that_of_the_alternative_that_was_chosen(said, decide):
    with pytest.raises(Refused, match=r"DeviceClass net\.example has locked routes"):
        decide([said({"locks": ["routes"]}, CLASS), said({"routes": []})], request="nic/fast")


BANDWIDTHS = {
    "a suffix": ({"bandwidth": "100M"}, 100_000_000),
    "the driver's domain": ({"net.podwire.dev/bandwidth": "2Gi"}, 2 * 2**30),
    "a number": ({"bandwidth": 8000}, 8000),
    "nothing": ({}, None),
    "another capacity": ({"slots": "1"}, None),
}


@pytest.mark.parametrize(("consumed", "bits"), BANDWIDTHS.values(), ids=list(BANDWIDTHS))
def test_a_share_of_a_shared_device_is_held_to_the_bandwidth_that_it_was_given(consumed, bits, said, decide, devices):
    child = [said({"interface": {"kind": "macvlan"}})]
    assert decide(child, devices["shared"], shareID="s", consumedCapacity=consumed).bits_per_second == bits


def test_a_bandwidth_of_nothing_is_refused(said, decide, devices):
    with pytest.raises(Refused) as refused:
        decide([said({"interface": {"kind": "tap"}})], devices["shared"], consumedCapacity={"bandwidth": "0"})
    assert refused.value.field == "status.allocation.devices.results[0].consumedCapacity[bandwidth]"
    assert "at least 8 bits a second" in refused.value.reason


def test_a_whole_device_has_its_whole_bandwidth(decide):
    assert decide([], consumedCapacity={"bandwidth": "1G"}).bits_per_second is None


def test_claim_without_allocation_has_no_parameters(devices):
    from podwire.objects import claims

    claim = claims.read({"metadata": {"name": "c", "namespace": "default", "uid": "u"}})
    assert effective(claim, claims.AllocatedDevice(request="nic"), devices["whole"]).name == "eth1"


def test_settings_are_complete(said, decide, devices):
    vxlan = decide([said({"interface": {"kind": "vxlan", "vni": 7, "remote": "2001:DB8::9"}})], devices["shared"]).made
    assert (vxlan.kind, vxlan.vni, vxlan.remote, vxlan.port) == ("vxlan", 7, "2001:db8::9", 4789)
    assert decide([said({"interface": {"kind": "macvlan"}})], devices["shared"]).made.mode == "bridge"
    assert decide([said({"interface": {"kind": "ipvlan"}})], devices["shared"]).made.mode == "l2"
    assert decide([said({"interface": {"kind": "veth"}})], devices["bridge"]).made.bridge == "br0"
    assert decide([said({"interface": {"mac": "02:AB:00:00:00:01"}})]).mac == "02:ab:00:00:00:01"
    assert decide([], devices["rdma"]).rdma
    assert not decide([said({"rdma": False})], devices["rdma"]).rdma
    assert decide([], devices["ib-only"]).name == ""


def test_routes_are_in_the_table_of_the_vrf(said, decide):
    routes = [*link_routes("10.0.0.0/8"), {"destination": "11.0.0.0/8", "scope": "link", "table": 100}]
    found = decide([said({"routes": routes})]).routes
    assert [(item.table, item.scope) for item in found] == [(254, 253), (100, 253)]
    vrf = decide([said({"interface": {"vrf": {"name": "red"}}, "routes": link_routes("10.0.0.0/8")})])
    assert vrf.vrf is not None
    assert 1000 <= vrf.vrf.table < 2000
    assert vrf.routes == (Route(destination=found[0].destination, scope=253, table=vrf.vrf.table),)
