"""Addresses that a range can give."""

from ipaddress import ip_address, ip_network
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.ipam.ranges import after, find_range, parse_range, parse_sets, size
from podwire.protocols.cni.errors import CniError


def given_from(subnet, **keys):
    return [str(item) for item in after((parse_range({"subnet": subnet} | keys, ""),), None)]


@pytest.mark.parametrize(
    ("subnet", "keys", "addresses"),
    [
        pytest.param("10.1.0.0/30", {}, ["10.1.0.2"], id="the smallest"),
        pytest.param(
            "10.1.0.0/29", {}, [f"10.1.0.{number}" for number in range(2, 7)], id="no network, gateway, broadcast"
        ),
        pytest.param(
            "10.1.0.0/29", {"gateway": "10.1.0.6"}, [f"10.1.0.{number}" for number in range(1, 6)], id="gateway"
        ),
        pytest.param(
            "10.1.0.0/24", {"rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.10"}, ["10.1.0.9", "10.1.0.10"], id="part"
        ),
        pytest.param("fd00::/126", {}, ["fd00::2", "fd00::3"], id="IPv6 has no broadcast"),
    ],
)
def test_subnet_yields_all_but_gateway_network_and_broadcast(subnet, keys, addresses):
    assert given_from(subnet, **keys) == addresses


def test_size_of_a_huge_subnet_is_computed():
    part = parse_range({"subnet": "fd00::/64"}, "")
    assert [str(item) for item in islice(after((part,), None), 2)] == ["fd00::2", "fd00::3"]


@pytest.mark.parametrize(
    ("config", "reported"),
    [
        pytest.param({}, "needs subnet or ranges", id="nothing"),
        pytest.param({"subnet": "10.1.0.1/24"}, "beyond its prefix", id="host bits"),
        pytest.param({"subnet": "10.1.0.0/33"}, "not a network", id="prefix"),
        pytest.param({"subnet": "10.1.0.0"}, "not a network", id="no prefix"),
        pytest.param({"subnet": "10.1.0.0/31"}, "too small", id="/31"),
        pytest.param({"subnet": "fd00::/127"}, "too small", id="/127"),
        pytest.param({"subnet": "10.1.0.0/24", "rangeStart": "10.2.0.1"}, "rangeStart", id="start outside"),
        pytest.param({"subnet": "10.1.0.0/24", "rangeEnd": "10.2.0.1"}, "rangeEnd", id="end outside"),
        pytest.param(
            {"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.8"}, "not within", id="backwards"
        ),
        pytest.param({"subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.255"}, "not within", id="broadcast"),
        pytest.param({"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.0"}, "not within", id="network"),
        pytest.param({"subnet": "10.1.0.0/24", "gateway": "10.2.0.1"}, "gateway", id="gateway outside"),
        pytest.param({"subnet": "10.1.0.0/24", "gateway": "fd00::1"}, "gateway", id="gateway of another family"),
        pytest.param({"ranges": [[]]}, "empty", id="an empty set"),
        pytest.param(
            {"ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "fd00::/64"}]]}, "IPv4 and IPv6", id="families"
        ),
        pytest.param(
            {"ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "10.1.0.0/25"}]]}, "overlap", id="overlap in a set"
        ),
        pytest.param(
            {"subnet": "10.1.0.0/24", "ranges": [[{"subnet": "10.1.0.0/16"}]]}, "overlap", id="overlap of sets"
        ),
        pytest.param({"ranges": {"subnet": "10.1.0.0/24"}}, "not a list", id="no list"),
        pytest.param({"ranges": [{"subnet": "10.1.0.0/24"}]}, "not a list", id="no list of lists"),
    ],
)
def test_invalid_configuration_is_an_error_with_its_key(config, reported):
    with pytest.raises(CniError, match=reported) as caught:
        parse_sets(config)
    assert caught.value.code in (6, 7)


def test_one_subnet_can_be_in_several_sets():
    one = {"subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.99"}
    other = {"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.100"}
    assert len(parse_sets({"ranges": [[one], [other]]})) == 2


def test_ranges_of_the_capability_come_first():
    first, second = parse_sets({"subnet": "10.1.0.0/24"}, [[{"subnet": "10.2.0.0/24"}]])
    assert str(first[0].subnet) == "10.2.0.0/24"
    assert str(second[0].subnet) == "10.1.0.0/24"


parts = st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True).map(
    lambda numbers: tuple(parse_range({"subnet": f"10.{number}.0.0/29"}, "") for number in numbers)
)


@given(parts, st.integers(0, 7), st.integers(0, 7))
def test_every_address_is_yielded_once_the_last_one_last(ranges, number, host):
    last = ip_address(f"10.{number}.0.{host}")
    offered = list(after(ranges, last))
    assert sorted(offered) == sorted(after(ranges, None))
    assert len(set(offered)) == len(offered)
    if last in offered:
        assert offered[-1] == last
    assert all(find_range(ranges, item) is not None for item in offered)


@given(st.integers(16, 30), st.integers(0, 2**16 - 1))
def test_range_yields_only_addresses_of_its_subnet(length, number):
    subnet = ip_network((0x0A000000 + (number << 8), length), strict=False)
    offered = list(islice(after((parse_range({"subnet": str(subnet)}, ""),), None), 300))
    assert all(item in subnet for item in offered)
    assert {subnet.network_address, subnet.network_address + 1, subnet.broadcast_address} & set(offered) == set()


@pytest.mark.parametrize(
    ("exclude", "given"),
    [
        ([], ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"]),
        (["10.1.0.3"], ["10.1.0.2", "10.1.0.4", "10.1.0.5", "10.1.0.6"]),
        (["10.1.0.0/30"], ["10.1.0.4", "10.1.0.5", "10.1.0.6"]),
        (["10.1.0.6/31", "10.1.0.2", "10.9.0.0/16", "fd00::1"], ["10.1.0.3", "10.1.0.4", "10.1.0.5"]),
    ],
    ids=str,
)
def test_excluded_addresses_are_not_yielded(exclude, given):
    (set_,) = parse_sets({"subnet": "10.1.0.0/29", "exclude": exclude})
    assert [str(item) for item in after(set_, None)] == given
    assert size(set_) == len(given)


@pytest.mark.parametrize(
    ("exclude", "reported"),
    [(["10.1.0.0/24"], "nothing is left"), (["x"], "not an IP address"), (["1.2.3.4/33"], "not a network")],
)
def test_invalid_exclusion_is_an_error(exclude, reported):
    with pytest.raises(CniError, match=reported) as caught:
        parse_sets({"subnet": "10.1.0.0/29", "exclude": exclude})
    assert caught.value.code == 7
