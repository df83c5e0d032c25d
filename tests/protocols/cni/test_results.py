"""Results in the shapes of all versions."""

from contextlib import suppress
from ipaddress import ip_address, ip_interface, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.cni.errors import CniError
from podwire.protocols.cni.results import DNS, IP, Interface, Result, Route, decode, encode
from podwire.protocols.cni.versions import KNOWN

FULL = Result(
    interfaces=(
        Interface("cni0", "0a:58:00:00:00:01", mtu=1500),
        Interface("eth0", "0a:58:00:00:00:02", "/run/netns/a", 1400, "/run/x.sock", "0000:00:1f.6"),
    ),
    ips=(
        IP(ip_interface("10.1.0.5/24"), ip_address("10.1.0.1"), 1),
        IP(ip_interface("fd00::5/64"), None, 0),
    ),
    routes=(
        Route(ip_network("0.0.0.0/0"), ip_address("10.1.0.1"), mtu=1300, advmss=1200, priority=7, table=0, scope=253),
        Route(ip_network("fd99::/64")),
    ),
    dns=DNS(("1.1.1.1",), "x", ("a", "b"), ("ndots:5",)),
)


def test_1_1_0_encodes_everything():
    assert encode(FULL, "1.1.0") == {
        "cniVersion": "1.1.0",
        "interfaces": [
            {"name": "cni0", "mac": "0a:58:00:00:00:01", "mtu": 1500},
            {
                "name": "eth0",
                "mac": "0a:58:00:00:00:02",
                "sandbox": "/run/netns/a",
                "mtu": 1400,
                "socketPath": "/run/x.sock",
                "pciID": "0000:00:1f.6",
            },
        ],
        "ips": [
            {"interface": 1, "address": "10.1.0.5/24", "gateway": "10.1.0.1"},
            {"interface": 0, "address": "fd00::5/64"},
        ],
        "routes": [
            {
                "dst": "0.0.0.0/0",
                "gw": "10.1.0.1",
                "mtu": 1300,
                "advmss": 1200,
                "priority": 7,
                "table": 0,
                "scope": 253,
            },
            {"dst": "fd99::/64"},
        ],
        "dns": {"nameservers": ["1.1.1.1"], "domain": "x", "search": ["a", "b"], "options": ["ndots:5"]},
    }


@pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0"])
def test_before_1_0_0_addresses_have_a_family_and_links_no_new_fields(version):
    result = encode(FULL, version)
    assert [address["version"] for address in result["ips"]] == ["4", "6"]
    assert result["interfaces"][1] == {"name": "eth0", "mac": "0a:58:00:00:00:02", "sandbox": "/run/netns/a"}
    assert result["routes"][0] == {"dst": "0.0.0.0/0", "gw": "10.1.0.1"}
    assert encode(FULL._replace(dns=DNS()), version)["dns"] == {}


def test_1_0_0_has_neither():
    result = encode(FULL, "1.0.0")
    assert "version" not in result["ips"][0]
    assert "mtu" not in result["interfaces"][0] | result["routes"][0]
    assert "dns" not in encode(FULL._replace(dns=DNS()), "1.0.0")


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_before_0_3_0_there_is_one_address_of_each_family(version):
    more = FULL._replace(ips=(*FULL.ips, IP(ip_interface("10.1.0.6/24"))))
    assert encode(more, version) == {
        "cniVersion": version,
        "ip4": {"ip": "10.1.0.5/24", "gateway": "10.1.0.1", "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}]},
        "ip6": {"ip": "fd00::5/64", "routes": [{"dst": "fd99::/64"}]},
        "dns": {"nameservers": ["1.1.1.1"], "domain": "x", "search": ["a", "b"], "options": ["ndots:5"]},
    }
    with pytest.raises(CniError, match="without addresses"):
        encode(Result(), version)


addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))
interfaces = st.builds(
    lambda ip, length: ip_interface((ip, length if ip.version == 6 else length % 33)), addresses, st.integers(0, 128)
)
names = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=15)
links = st.lists(st.builds(Interface, names, names, names, st.integers(0, 9000)), max_size=3).map(tuple)
numbers = st.integers(0, 2**31)


@st.composite
def results(draw):
    made = draw(links)
    index = st.none() if not made else st.one_of(st.none(), st.integers(0, len(made) - 1))
    ips = st.lists(st.builds(IP, interfaces, st.one_of(st.none(), addresses), index), max_size=3).map(tuple)
    nets = interfaces.map(lambda each: each.network)
    optional = st.one_of(st.none(), numbers)
    gateways = st.one_of(st.none(), addresses)
    routes = st.builds(Route, nets, gateways, numbers, numbers, numbers, optional, optional, st.none())
    dns = st.builds(DNS, st.lists(names).map(tuple), names, st.lists(names).map(tuple), st.lists(names).map(tuple))
    return Result(made, draw(ips), draw(st.lists(routes, max_size=3).map(tuple)), draw(dns))


@given(results())
def test_a_result_in_the_latest_version_survives_a_round_trip(result):
    assert decode(encode(result, "1.1.0"), "1.1.0") == result


@given(results(), st.sampled_from(KNOWN))
def test_decoding_and_encoding_again_changes_nothing_in_any_version(result, version):
    try:
        outcome = encode(result, version)
    except CniError:
        assert not result.ips
        return
    assert encode(decode(outcome, "1.1.0"), version) == outcome


@pytest.mark.parametrize(
    ("value", "reported"),
    [
        pytest.param([], "not a JSON object", id="a list"),
        pytest.param({"ips": {}}, "ips: {} is not a list", id="not a list"),
        pytest.param({"ips": [None]}, r"ips\[0\]: null", id="null in a list"),
        pytest.param({"ips": [{"address": "10.0.0.1"}]}, "prefix length", id="no prefix"),
        pytest.param({"ips": [{"address": "fe80::1%eth0/64"}]}, "prefix length", id="a zone"),
        pytest.param({"ips": [{}]}, "address", id="no address"),
        pytest.param({"ips": [{"address": "10.0.0.1/8", "interface": 0}]}, "no interface 0", id="no interface"),
        pytest.param({"ips": [{"address": "10.0.0.1/8", "interface": True}]}, "integer", id="a boolean index"),
        pytest.param({"routes": [{"dst": "anywhere"}]}, "dst", id="no network"),
        pytest.param({"interfaces": [{"name": 5}]}, "name: 5 is not a string", id="a number for a name"),
        pytest.param({"cniVersion": "new"}, "not a version", id="no version"),
        pytest.param({"cniVersion": "0.2.0", "ip4": {"gateway": "10.0.0.1"}}, "ip4.ip", id="old shape without address"),
    ],
)
def test_an_invalid_result_is_rejected_with_the_invalid_field(value, reported):
    with pytest.raises(CniError, match=reported):
        decode(value, "1.1.0")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda each: (
            st.lists(each)
            | st.dictionaries(
                st.sampled_from(["ips", "interfaces", "routes", "dns", "cniVersion", "address", "ip4"]), each
            )
        ),
        max_leaves=8,
    )
)
def test_any_output_of_a_plugin_is_a_result_or_an_error(value):
    with suppress(CniError):
        decode(value, "1.1.0")


def test_null_and_nothing_are_an_empty_result():
    assert decode(None, "1.0.0") == decode({}, "1.0.0") == Result()
