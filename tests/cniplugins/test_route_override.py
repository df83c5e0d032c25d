"""route-override, on the real kernel: routes of earlier plugins are removed, others are added."""

import pytest

from podwire.linux.net.network import KernelNetwork

DUAL = ("10.88.0.0/24", "fd88::/64")
OWN = {("10.88.0.0/24", ""), ("fd88::/64", "")}
DEFAULTS = {("0.0.0.0/0", "10.88.0.1"), ("::/0", "fd88::1")}
GIVEN = {("10.9.0.0/16", "10.88.0.1"), ("fd99::/64", "fd88::1")}


def override(previous, **keys):
    return {"cniVersion": "1.1.0", "name": "net", "type": "route-override", "prevResult": previous} | keys


def routes(netns):
    with KernelNetwork(netns) as pod:
        listed = [route for family in (4, 6) for route in pod.routes.list(family)]
    return {
        (str(route.destination), str(route.gateway or "")) for route in listed if not route.destination.is_link_local
    }


@pytest.fixture
def attached(host):
    def attach():
        pod = host.pod("a")
        config = host.bridge(*DUAL)
        config["ipam"]["routes"] = [{"dst": "10.9.0.0/16"}, {"dst": "fd99::/64"}]
        previous = host.add("a", config)
        assert routes(pod) == OWN | DEFAULTS | GIVEN
        return pod, previous

    return attach


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        pytest.param({"flushroutes": True}, OWN, id="flushroutes"),
        pytest.param({"flushgateway": True}, OWN | GIVEN, id="flushgateway"),
        pytest.param(
            {"delroutes": [{"dst": "10.9.0.0/16"}]}, OWN | DEFAULTS | {("fd99::/64", "fd88::1")}, id="delroutes"
        ),
        pytest.param(
            {"flushroutes": True, "addroutes": [{"dst": "10.7.0.0/16", "gw": "10.88.0.9"}, {"dst": "10.6.0.0/16"}]},
            OWN | {("10.7.0.0/16", "10.88.0.9"), ("10.6.0.0/16", "10.88.0.1")},
            id="addroutes",
        ),
        pytest.param(
            {"flushroutes": False, "args": {"cni": {"flushroutes": True, "addroutes": [{"dst": "10.5.0.0/16"}]}}},
            OWN | {("10.5.0.0/16", "10.88.0.1")},
            id="args",
        ),
        pytest.param({}, OWN | DEFAULTS | GIVEN, id="nothing"),
    ],
)
def test_routes_are_removed_and_added(host, attached, keys, left):
    pod, previous = attached()
    config = override(previous, **keys)
    result = host.add("a", config)
    assert routes(pod) == left
    document = {(route["dst"], route.get("gw", "")) for route in result.get("routes", [])}
    assert {dst for dst, _ in document} == {dst for dst, _ in left - OWN}
    assert result["interfaces"] == previous["interfaces"]
    host.check("a", config, result)
    assert host.add("a", config) == result
    assert routes(pod) == left
    host.delete("a", config)
    host.delete("a", config, "")


def test_removed_gateways_are_not_in_the_result(host, attached):
    _, previous = attached()
    result = host.add("a", override(previous, flushgateway=True))
    assert [ip.get("gateway") for ip in result["ips"]] == [None, None]


@pytest.mark.parametrize("change", ["a removed route is back", "an added route is missing"])
def test_check_fails_for_each_change_unless_it_is_skipped(host, attached, refused, change):
    pod, previous = attached()
    config = override(previous, delroutes=[{"dst": "10.9.0.0/16"}], addroutes=[{"dst": "10.7.0.0/16"}])
    result = host.add("a", config)
    with KernelNetwork(pod) as inside:
        [new] = [route for route in inside.routes.list(4) if str(route.destination) == "10.7.0.0/16"]
        if change == "a removed route is back":
            inside.routes.add(new._replace(destination=type(new.destination)("10.9.0.0/16")))
        else:
            inside.routes.delete(new)
    outcome = "10.9.0.0/16 exists again" if "back" in change else "10.7.0.0/16 via 10.88.0.1 does not exist"
    with refused(101, outcome):
        host.check("a", config, result)
    host.check("a", config | {"skipcheck": True}, result)


@pytest.mark.parametrize(
    ("keys", "code", "reported"),
    [
        pytest.param({"flushroutes": 1}, 6, "flushroutes", id="no boolean"),
        pytest.param({"addroutes": [{"dst": "x"}]}, 7, r"addroutes\[0\].dst", id="no network"),
        pytest.param({"delroutes": {}}, 6, "delroutes", id="no list"),
        pytest.param({"args": {"cni": {"delroutes": [{"dst": ""}]}}}, 7, r"args.cni.delroutes\[0\].dst", id="args"),
        pytest.param({"prevResult": None}, 7, "prevResult: missing", id="not chained"),
    ],
)
def test_invalid_configuration_is_an_error_and_changes_nothing(host, attached, refused, keys, code, reported):
    pod, previous = attached()
    with refused(code, reported):
        host.add("a", override(previous) | keys)
    assert routes(pod) == OWN | DEFAULTS | GIVEN


def test_gc_and_status_have_nothing_to_do(host):
    config = {"cniVersion": "1.1.0", "name": "net", "type": "route-override"}
    assert host.call("GC", "", config | {"cni.dev/valid-attachments": []}, "") is None
    assert host.call("STATUS", "", config, "") is None
