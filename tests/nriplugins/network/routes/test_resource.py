"""PodRoutes that the API let through, or never saw."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.nriplugins.network.resources import Broken
from podwire.nriplugins.network.routes.resource import PodRoute, read

WAY = {"destinations": ["10.20.0.0/16"], "via": "10.1.0.2"}


def resource(spec):
    return {"kind": "PodRoute", "metadata": {"name": "a", "namespace": "default"}, "spec": spec}


def reported(found):
    assert isinstance(found, Broken), found
    return [str(error) for error in found.errors]


def test_a_route_with_only_required_fields_is_read():
    found = read(resource({"routes": [{"destinations": ["fd20::/64"]}]}))
    assert isinstance(found, PodRoute)
    assert (found.interface, found.table, found.own, found.head.fails) == ("eth0", 254, False, True)
    assert not found.head.selector.matches({}), "without a selector it is for those that name it"


def test_a_route_with_every_field_is_read():
    way = {**WAY, "metric": 5, "mtu": 1400, "advmss": 1360, "onLink": True}
    found = read(
        resource(
            {
                "podSelector": {"matchLabels": {"app": "web"}},
                "failurePolicy": "Ignore",
                "interface": "net1",
                "table": 100,
                "sources": ["PodIPs", "10.9.0.0/16"],
                "routes": [way],
            }
        )
    )
    assert isinstance(found, PodRoute)
    assert (found.interface, found.table, found.own, found.head.fails) == ("net1", 100, True, False)
    [read_way] = found.ways
    assert (read_way.metric, read_way.mtu, read_way.advmss, read_way.on_link) == (5, 1400, 1360, True)


CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
BEYOND = "must not have bits set beyond its prefix length"
BAD = {
    "no routes": ({}, "spec.routes: Required value"),
    "an unknown field": ({"routes": [WAY], "gateway": 1}, "spec.gateway: Invalid value: 1: unknown field"),
    "no destinations": ({"routes": [{}]}, "spec.routes[0].destinations: Required value"),
    "no network": (
        {"routes": [{"destinations": ["10.20.0.0"]}]},
        f'spec.routes[0].destinations[0]: Invalid value: "10.20.0.0": {CIDR}',
    ),
    "bits beyond the prefix": (
        {"routes": [{"destinations": ["10.20.0.1/16"]}]},
        f'spec.routes[0].destinations[0]: Invalid value: "10.20.0.1/16": {BEYOND}; the network is 10.20.0.0/16',
    ),
    "no address": (
        {"routes": [{**WAY, "via": "gateway"}]},
        f'spec.routes[0].via: Invalid value: "gateway": {ADDRESS}',
    ),
    "an address with a zone": (
        {"routes": [{"destinations": ["fd20::/64"], "via": "fe80::1%eth0"}]},
        f'spec.routes[0].via: Invalid value: "fe80::1%eth0": {ADDRESS}',
    ),
    "nobody's address": (
        {"routes": [{**WAY, "via": "0.0.0.0"}]},
        'spec.routes[0].via: Invalid value: "0.0.0.0": must be the address of another host',
    ),
    "families mixed": (
        {"routes": [{"destinations": ["fd20::/64"], "via": "10.1.0.2"}]},
        'spec.routes[0].via: Invalid value: "10.1.0.2": must be of the same IP family as all destinations',
    ),
    "a small MTU for IPv6": (
        {"routes": [{"destinations": ["fd20::/64"], "mtu": 1000}]},
        "spec.routes[0].mtu: Invalid value: 1000: must be at least 1280 for IPv6 destinations",
    ),
    "onLink without a gateway": (
        {"routes": [{"destinations": ["fd20::/64"], "onLink": True}]},
        "spec.routes[0].onLink: Invalid value: true: says something about via, and there is none",
    ),
    "a metric that is a text": (
        {"routes": [{**WAY, "metric": "5"}]},
        'spec.routes[0].metric: Invalid value: "5": must be an integer',
    ),
    "one destination twice": (
        {"routes": [WAY, {**WAY, "via": "10.1.0.3"}]},
        'spec.routes[1].destinations[0]: Duplicate value: "10.20.0.0/16"',
    ),
    "the kernel's table": ({"routes": [WAY], "table": 255}, "spec.table: Invalid value: 255: belongs to the kernel"),
    "no table": (
        {"routes": [WAY], "table": -1},
        "spec.table: Invalid value: -1: must be between 1 and 4294967295, inclusive",
    ),
    "sources without a table": (
        {"routes": [WAY], "sources": ["PodIPs"]},
        'spec.sources: Invalid value: ["PodIPs"]: need a table of their own: everything looks into the main one',
    ),
    "a link that cannot be": (
        {"routes": [WAY], "interface": "eth0/x"},
        'spec.interface: Invalid value: "eth0/x": must be the name of a link in the pod',
    ),
    "a policy that there is not": (
        {"routes": [WAY], "failurePolicy": "Maybe"},
        'spec.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"',
    ),
    "too many": (
        {"routes": [WAY] * 33},
        "spec.routes: Too many: 33: must have at most 32 items",
    ),
}


@pytest.mark.parametrize(("spec", "error"), BAD.values(), ids=BAD)
def test_invalid_values_are_reported_with_their_field(spec, error):
    assert reported(read(resource(spec))) == [error]


def test_all_errors_are_reported_at_once():
    spec = {"table": 0, "interface": "", "routes": [{"destinations": ["x"], "via": 1}]}
    assert [error.field for error in read(resource(spec)).errors] == [
        "spec.table",
        "spec.interface",
        "spec.routes[0].destinations[0]",
        "spec.routes[0].via",
    ]


def test_an_empty_spec_is_reported():
    assert reported(read(resource(None))) == ["spec: Required value", "spec.routes: Required value"]


def test_an_invalid_selector_selects_nothing_and_is_reported():
    found = read(resource({"routes": [WAY], "podSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}))
    assert [error.field for error in found.errors] == ["spec.podSelector"]
    assert not found.head.selector.matches({"a": "b"})


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["10.0.0.0/8", "::/0", "fd00::1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["podSelector", "matchLabels", "routes", "destinations", "via", "sources", "table", "mtu", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_parsed_or_reported_invalid(spec):
    found = read(resource(spec))
    assert isinstance(found, PodRoute) or found.errors
