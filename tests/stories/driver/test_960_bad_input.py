"""What cannot be is refused at the earliest place that can know, with the field and the reason; the host's links are
untouched."""

import json

import pytest

AT = "spec.devices.config[0].opaque.parameters"


@pytest.fixture(scope="module")
def stage(empty_stage):
    made = empty_stage
    made.up(config={"shared": [{"interface": "up1"}]})
    made.veth("lan1", "192.0.2.1/24")
    made.veth("lan2")
    made.veth("up1")
    made.veth("wan", "198.51.100.2/24")
    made.batch("route add default via 198.51.100.1 dev wan metric 9999")
    made.driver.start()
    made.offered("lan1", "lan2", "up1")
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
def test_what_everybody_can_know_is_refused_when_it_is_written(stage, claim, given, field):
    done = stage.cluster.kubectl("create", "-f", "-", given=json.dumps(claim("bad", "lan1", **given)))
    assert done.returncode == 1, done.stdout
    assert f"{AT}.{field}" in done.stderr


def test_what_only_the_driver_can_know_is_refused_before_anything_is_touched(stage, claim):
    before = stage.dump("")
    wanted = {
        "clash": ("the name", [claim("c1", "lan1"), claim("c2", "lan2")], ("c1", "c2"), {}),
        "host": ("spec.hostNetwork", [claim("h", "lan1")], ("h",), {"hostNetwork": True}),
        "vrf": ("vrf", [claim("v", "lan1", vrf={"name": "red"})], ("v",), {}),
        "vlan": ("vlan", [claim("vl", "up1", shared=True, kind_="vlan", vlan=7)], ("vl",), {}),
        "whole-kind": ("interface.kind", [claim("k", "lan1", kind_="macvlan")], ("k",), {}),
        "no-pool": ("interface.addressPool", [claim("p", "lan1", addressPool="nowhere")], ("p",), {}),
    }
    for name, (text, claims, uses, spec) in wanted.items():
        stage.cluster.apply(*claims, stage.pod(name, *uses, **spec))
        stage.waits(name, text)
        stage.cluster.told("delete", "pod", name)
        stage.cluster.told("delete", "resourceclaims", *uses)
    assert stage.dump("lan", "up", "wan")["links"].keys() == {"lan1", "lan1p", "lan2", "lan2p", "up1", "up1p", "wan", "wanp"}
    stage.as_before(before, "")


def test_the_nodes_own_way_is_nobodys(stage, claim):
    stage.cluster.eventually(lambda: "wan" not in stage.devices(), "the uplink is not offered", stage.logs)
    stage.cluster.apply(claim("uplink", "wan"), stage.pod("uplink", "uplink"))
    stage.waits("uplink", "FailedScheduling")
    assert any(each["dev"] == "wan" for each in stage.ip("route show default"))
    stage.cluster.told("delete", "pod", "uplink")


def test_a_whole_link_is_for_one_pod_at_a_time(stage, claim):
    stage.run(claim("one", "lan1"), stage.pod("first", "one"))
    stage.cluster.apply(stage.pod("second", "one"))
    stage.waits("second", "one")
    stage.deleted("first")
    stage.ready("second")
    stage.deleted("second")
    stage.never_bare("first", "second")
