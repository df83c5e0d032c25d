"""Impossible requests are refused as early as possible, with the field and the reason; the host's links are
untouched."""

import json

import pytest

AT = "spec.devices.config[0].opaque.parameters"
LANS = tuple(f"lan{number}" for number in range(1, 7))


@pytest.fixture(scope="module")
def stage(empty_stage):
    made = empty_stage
    made.up(config={"shared": [{"interface": "up1"}]})
    for lan in (*LANS, "up1"):
        made.veth(lan)
    made.veth("wan", "2001:db8:f::2/64")
    made.node("ip", "-6", "route", "add", "default", "via", "2001:db8:f::1", "dev", "wan", "metric", "10")
    made.driver.start()
    made.offered(*LANS, "up1")
    return made


REFUSED = [
    pytest.param({"name": "../x"}, "interface.name", id="a name with a slash"),
    pytest.param({"name": "x" * 16}, "interface.name", id="a name of 16 letters"),
    pytest.param({"name": "eth0"}, "interface.name", id="the name of the pod's own"),
    pytest.param({"mtu": 0}, "interface.mtu", id="an MTU of nothing"),
    pytest.param({"mtu": 10**9}, "interface.mtu", id="an MTU of a gigabyte"),
    pytest.param({"mtu": "9000"}, "interface.mtu", id="an MTU in words"),
    pytest.param({"mac": "01:00:5e:00:00:01"}, "interface.mac", id="a multicast MAC"),
    pytest.param({"addresses": ["192.0.2.300/24"]}, "interface.addresses[0]", id="an address that is none"),
    pytest.param({"addresses": ["192.0.2.3"]}, "interface.addresses[0]", id="an address without a prefix"),
    pytest.param({"dhcp": True, "addresses": ["192.0.2.3/24"]}, "interface.dhcp", id="two ways to an address"),
    pytest.param({"speed": "fast"}, "interface.speed", id="a field that is none"),
    pytest.param({"arpIgnore": 9}, "interface.arpIgnore", id="a sysctl out of range"),
    pytest.param({"kind_": "bond"}, "interface.kind", id="a kind that is none"),
    pytest.param({"routes": [{"destination": "10.0.0.0/99"}]}, "routes[0]", id="a route to nowhere"),
    pytest.param({"routes": [{"destination": "10.0.0.0/8"}] * 65}, "routes", id="65 routes"),
    pytest.param({"rules": [{"priority": 0, "table": 9, "source": "::/0"}]}, "rules[0].priority", id="the first rule"),
    pytest.param({"locks": ["routes"]}, "locks", id="a lock of a user's"),
]


@pytest.mark.parametrize(("given", "field"), REFUSED)
def test_invalid_parameters_are_refused_when_the_claim_is_written(stage, claim, given, field):
    done = stage.cluster.kubectl("create", "-f", "-", given=json.dumps(claim("bad", "lan1", **given)))
    assert done.returncode == 1, done.stdout
    assert f"{AT}.{field}" in done.stderr


def test_parameters_only_the_driver_can_check_fail_before_any_change(stage, claim):
    before = stage.dump("")
    wanted = {
        'has "net1" in this pod too': [claim("clash", "lan1"), claim("clash-too", "lan2")],
        "spec.hostNetwork": [claim("host", "lan3")],
        "CONFIG_NET_VRF": [claim("vrf", "lan4", vrf={"name": "red"})],
        "CONFIG_VLAN_8021Q": [claim("vlan", "up1", shared=True, kind_="vlan", vlan=7)],
        "interface.kind": [claim("kind", "lan5", kind_="macvlan")],
        "interface.addressPool": [claim("pool", "lan6", addressPool="nowhere")],
    }
    names = {text: [claim["metadata"]["name"] for claim in claims] for text, claims in wanted.items()}
    pods = [
        stage.pod(name[0], *name, **({"hostNetwork": True} if name[0] == "host" else {})) for name in names.values()
    ]
    stage.cluster.apply(*(claim for claims in wanted.values() for claim in claims), *pods)
    said = {text: stage.waits(name[0], "ClaimPrepareFailed") for text, name in names.items()}
    assert {text: events for text, events in said.items() if text not in events} == {}
    for name in ("vrf", "pool"):
        [device] = stage.claimed_devices(name, "False", "PrepareFailed")
        assert "networkData" not in device
    stage.deleted(*(name[0] for name in names.values()))
    stage.as_before(before, "")


def test_the_nodes_default_route_link_is_not_allocated(stage, claim):
    stage.cluster.eventually(lambda: "wan" not in stage.devices(), "the uplink is not offered", stage.logs)
    stage.cluster.apply(claim("uplink", "wan"), stage.pod("uplink", "uplink"))
    stage.waits("uplink", "FailedScheduling")
    assert any(route["dev"] == "wan" for route in stage.ip("-6 route show default"))
    stage.cluster.output("delete", "pod", "uplink")


def test_a_whole_link_is_for_one_pod_at_a_time(stage, claim):
    stage.run(claim("one", "lan1"), stage.pod("first", "one"))
    stage.cluster.apply(stage.pod("second", "one"))
    stage.waits("second", "one")
    stage.deleted("first")
    stage.ready("second")
    stage.deleted("second")
    stage.never_bare("first", "second")
