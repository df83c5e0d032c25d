"""PodMeshes that the API let through, or never saw."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.nriplugins.network.mesh.resource import Direction, PodMesh, Proxy, read
from podwire.nriplugins.network.resources import Broken


def resource(spec):
    return {"kind": "PodMesh", "metadata": {"name": "a", "namespace": "default"}, "spec": spec}


def test_a_mesh_with_every_field_is_read():
    found = read(
        resource(
            {
                "podSelector": {},
                "failurePolicy": "Ignore",
                "proxy": {"uid": 1, "gid": 2, "mark": 3},
                "inbound": {"port": 15006, "excludeCIDRs": ["10.0.0.0/8"], "excludePorts": [22]},
                "outbound": {"port": 15001, "excludeUIDs": [0], "excludeGIDs": [7]},
            }
        )
    )
    assert isinstance(found, PodMesh)
    assert found.head.selector.matches({"any": "label"})
    assert not found.head.fails
    assert found.proxy == Proxy(uid=1, gid=2, mark=3)
    assert found.inbound == Direction(port=15006, cidrs=(ip_network("10.0.0.0/8"),), ports=(22,))
    assert found.outbound == Direction(port=15001, uids=(0,), gids=(7,))


def test_a_proxy_elsewhere_needs_no_name():
    found = read(resource({"proxy": {"addresses": ["10.1.0.1", "fd01::1"]}, "outbound": {"port": 80}}))
    assert isinstance(found, PodMesh)
    assert found.proxy.addresses == (ip_address("10.1.0.1"), ip_address("fd01::1"))


OUT = {"port": 15001}
LOOPS = "uid, gid or mark: without one the proxy's own connections would be led back to it"
BAD = {
    "no direction": ({}, "spec: Required value: inbound or outbound"),
    "a loop": ({"outbound": OUT}, f"spec.proxy: Required value: {LOOPS}"),
    "root as the proxy": (
        {"proxy": {"uid": 0, "gid": 1}, "outbound": OUT},
        "spec.proxy.uid: Invalid value: 0: must be between 1 and 4294967294, inclusive",
    ),
    "inbound to elsewhere": (
        {"proxy": {"addresses": ["10.1.0.1"]}, "inbound": OUT},
        "spec.inbound: Forbidden: what comes to the pod can only be redirected to a proxy in its namespace",
    ),
    "two of one family": (
        {"proxy": {"addresses": ["10.1.0.1", "10.1.0.2"]}, "outbound": OUT},
        'spec.proxy.addresses[1]: Duplicate value: "10.1.0.2"',
    ),
    "no port": ({"inbound": {}}, "spec.inbound.port: Required value"),
    "users of inbound": (
        {"inbound": {"port": 1, "excludeUIDs": [1]}},
        "spec.inbound.excludeUIDs: Invalid value: [1]: unknown field",
    ),
    "a port that is true": ({"inbound": {"port": True}}, "spec.inbound.port: Invalid value: true: must be an integer"),
    "no list": (
        {"inbound": {"port": 1, "excludePorts": 5}},
        "spec.inbound.excludePorts: Invalid value: 5: must be a list",
    ),
    "too many": (
        {"inbound": {"port": 1, "excludePorts": list(range(1, 70))}},
        "spec.inbound.excludePorts: Too many: 69: must have at most 64 items",
    ),
}


@pytest.mark.parametrize(("spec", "error"), BAD.values(), ids=BAD)
def test_invalid_values_are_reported_with_their_field(spec, error):
    found = read(resource(spec))
    assert isinstance(found, Broken), found
    assert [str(error) for error in found.errors] == [error]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 70000) | st.sampled_from(["10.0.0.0/8", "::/0", "fd00::1", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["podSelector", "proxy", "inbound", "outbound", "port", "uid", "addresses", "excludeCIDRs"]
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
    assert isinstance(found, PodMesh) or found.errors
