"""Desired content of the kernel for a Service."""

from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.proxy.plan import arrange, frontend, list_id, plan
from podwire.proxy.program import TARGETS, Target
from podwire.proxy.values import Port
from tests.proxy.objects import DNS, ENDING, HERE, HTTP, NAME, endpoint, service, slice_, target

NODE_PORT = Port("", 6, 80, 30080)
VIP, NODE = frontend(4, "10.96.0.10", 6, 80), frontend(4, "", 6, 30080)
EXTERNAL = frontend(4, "192.0.2.7", 6, 80)
TWO = slice_(endpoint("10.1.0.1"), endpoint("10.1.0.2", "here"))
REMOTE = slice_(endpoint("10.1.0.1"))


def verdicts(given, *slices):
    """Fate of packets of each frontend: the chain, and what is left for the filter."""
    elements = plan(given, slices, HERE, {}).elements
    chains = {key: data for (name, key), data in elements.items() if name == TARGETS}
    return {
        (name, key): chains[data[8:]] if data else ""
        for (name, key), data in elements.items()
        if name in ("frontends4", "frontends6", "refused4", "dropped4")
    }


def served(chain: str) -> str:
    return f"goto {chain}"


@pytest.mark.parametrize(
    ("given", "slices", "expected"),
    [
        (service(), [TWO], {("frontends4", VIP): served("cluster4-2")}),
        (service(), [], {("refused4", VIP): ""}),
        (service(), [slice_(endpoint("10.1.0.1", state=0))], {("refused4", VIP): ""}),
        (service(affinity=60), [TWO], {("frontends4", VIP): served("cluster4-2-for-60")}),
        (service(internal_local=True), [TWO], {("frontends4", VIP): served("cluster4-1")}),
        (service(internal_local=True), [REMOTE], {("dropped4", VIP): ""}),
        (service(internal_local=True), [], {("refused4", VIP): ""}),
        (
            service(ports=(NODE_PORT,)),
            [TWO],
            {("frontends4", VIP): served("cluster4-2"), ("frontends4", NODE): served("node4-2")},
        ),
        (
            service(ports=(NODE_PORT,), external_local=True),
            [TWO],
            {("frontends4", VIP): served("cluster4-2"), ("frontends4", NODE): served("node-local4-2-1")},
        ),
        (
            service(ports=(NODE_PORT,), external_local=True),
            [REMOTE],
            {
                ("frontends4", VIP): served("cluster4-1"),
                ("frontends4", NODE): served("node-local4-1-0"),
                ("dropped4", NODE): "",
            },
        ),
        (
            service(external_ips=("192.0.2.7",)),
            [TWO],
            {("frontends4", VIP): served("cluster4-2"), ("frontends4", EXTERNAL): served("external4-2")},
        ),
        (
            service(balancer_ips=("192.0.2.7",), external_local=True),
            [slice_(endpoint("10.1.0.1", "here", ENDING))],
            {("frontends4", VIP): served("cluster4-1"), ("frontends4", EXTERNAL): served("external-local4-1-1")},
        ),
        (service(ports=(DNS,)), [TWO], {("refused4", frontend(4, "10.96.0.10", 17, 53)): ""}),
    ],
    ids=[
        "cluster",
        "no endpoints",
        "none ready",
        "affinity",
        "internal local",
        "internal local elsewhere",
        "internal local nowhere",
        "node port",
        "node port local",
        "node port local elsewhere",
        "external",
        "load balancer local ending",
        "port of another name",
    ],
)
def test_each_address_and_port_leads_to_a_chain_or_is_refused(given, slices, expected):
    assert verdicts(given, *slices) == expected


def test_endpoints_of_all_slices_are_in_one_list_and_each_once():
    more = slice_(endpoint("10.1.0.3"), endpoint("10.1.0.1", state=0))
    elements = plan(service(), [TWO, more], HERE, {}).elements
    endpoints = [data for (name, _), data in elements.items() if name == "endpoints4"]
    assert sorted(endpoints) == [target("10.1.0.1"), target("10.1.0.2"), target("10.1.0.3")]


def test_slices_may_have_different_numbers_for_one_port():
    other = slice_(endpoint("10.1.0.3"), ports=(("", 6, 9090),))
    elements = plan(service(), [REMOTE, other], HERE, {}).elements
    assert {data for (name, _), data in elements.items() if name == "endpoints4"} == {
        target("10.1.0.1"),
        target("10.1.0.3", 9090),
    }


def test_a_service_of_both_families_has_lists_of_its_own_for_each():
    both = service(cluster_ips=("10.96.0.10", "fd00::10"))
    six = slice_(endpoint("fd01::1"), version=6)
    elements = plan(both, [TWO, six], HERE, {}).elements
    assert elements["frontends4", VIP].endswith(Target("cluster", 4, 2).number)
    assert elements["frontends6", frontend(6, "fd00::10", 6, 80)].endswith(Target("cluster", 6, 1).number)
    assert elements[TARGETS, Target("cluster", 6, 1).number] == "goto cluster6-1"
    assert {name for name, _ in elements} >= {"endpoints4", "endpoints6", "cluster_ips4", "cluster_ips6"}


def test_endpoints_of_this_node_are_known_for_hairpins():
    assert plan(service(), [TWO], HERE, {}).here == {(4, bytes((10, 1, 0, 2)))}


def test_source_ranges_limit_the_addresses_of_the_load_balancer_only():
    limited = service(
        balancer_ips=("192.0.2.7",),
        external_ips=("192.0.2.8",),
        sources=tuple(map(ip_network, ("10.0.0.0/9", "10.128.0.0/9", "fd00::/8"))),
    )
    elements = plan(limited, [TWO], HERE, {}).elements
    assert [key for name, key in elements if name == "limited4"] == [EXTERNAL]
    ranges = {key: last for (name, key), last in elements.items() if name == "sources4"}
    ours, own = bytes((10, 0, 0, 0)), bytes((192, 0, 2, 7))
    assert ranges == {EXTERNAL + ours: EXTERNAL + bytes((10, 255, 255, 255)), EXTERNAL + own: EXTERNAL + own}


def test_udp_frontends_are_reported_with_their_endpoints():
    given = service(ports=(DNS,))
    known = plan(given, [slice_(endpoint("10.1.0.1"), ports=(("dns", 17, 5353),))], HERE, {}).datagrams
    assert known == {(4, frontend(4, "10.96.0.10", 17, 53)): frozenset({target("10.1.0.1", 5353)})}


def test_the_id_of_a_list_is_the_same_after_a_restart():
    assert list_id(service(), 4, HTTP, "cluster").hex() == "00000000891fffdd86912ee0"
    assert list_id(service(), 4, HTTP, "local") != list_id(service(), 4, HTTP, "cluster")
    assert NAME == ("default", "web")


members = st.lists(st.binary(min_size=1, max_size=1), unique=True, max_size=12)


@given(members, members)
def test_an_order_changes_in_as_few_indexes_as_possible(before, wanted):
    after = arrange(tuple(before), wanted)
    assert sorted(after) == sorted(wanted)
    kept = [index for index, each in enumerate(before[: len(wanted)]) if each in wanted]
    assert all(after[index] == before[index] for index in kept)
    changed = sum(1 for index, each in enumerate(after) if index >= len(before) or before[index] != each)
    assert changed == len(wanted) - len(kept)
