"""Endpoints that a node uses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.proxy.topology import Place, choose
from podwire.proxy.values import READY, SERVING, TERMINATING, Endpoint
from tests.proxy.objects import ENDING, HERE, endpoint

A, B, C = "10.1.0.1", "10.1.0.2", "10.1.0.3"


def chosen(*endpoints, place=HERE) -> tuple[list[str], list[str]]:
    result = choose(endpoints, place)
    return tuple([".".join(map(str, item.address)) for item in some] for some in result)


@pytest.mark.parametrize(
    ("endpoints", "cluster", "local"),
    [
        ([], [], []),
        ([endpoint(A), endpoint(B, "here")], [A, B], [B]),
        ([endpoint(A), endpoint(B, "here", 0)], [A], []),
        ([endpoint(A, state=ENDING), endpoint(B, "here")], [B], [B]),
        ([endpoint(A, state=ENDING), endpoint(B, "here", ENDING)], [A, B], [B]),
        # each policy decides for itself whether it falls back to endpoints that terminate
        ([endpoint(A), endpoint(B, "here", ENDING)], [A], [B]),
        ([endpoint(A, state=TERMINATING), endpoint(B, state=SERVING)], [], []),
    ],
    ids=["none", "ready", "unready", "ready before ending", "all ending", "local ending", "neither serves nor ends"],
)
def test_ready_endpoints_are_used_and_else_those_that_serve_until_they_end(endpoints, cluster, local):
    assert chosen(*endpoints) == (cluster, local)


def hinted(address: str, *, zones=(), nodes=(), **fields):
    return endpoint(address, zones=tuple(zones), nodes=tuple(nodes), **fields)


@pytest.mark.parametrize(
    ("endpoints", "cluster"),
    [
        ([hinted(A, zones=["zone-a"]), hinted(B, zones=["zone-b"])], [A]),
        ([hinted(A, zones=["zone-a"]), hinted(B)], [A, B]),
        ([hinted(A, zones=["zone-c"]), hinted(B, zones=["zone-b"])], [A, B]),
        ([hinted(A, zones=["zone-a"], nodes=["there"]), hinted(B, zones=["zone-a"], nodes=["here"])], [B]),
        ([hinted(A, zones=["zone-a"], nodes=["there"]), hinted(B, zones=["zone-b"], nodes=["there"])], [A]),
        ([hinted(A, zones=["zone-a"]), hinted(B, state=ENDING)], [A]),
    ],
    ids=["zone", "one without", "none for us", "node before zone", "zone if no node", "only ready ones count"],
)
def test_hints_count_if_every_ready_endpoint_has_one_and_one_is_for_this_node(endpoints, cluster):
    assert chosen(*endpoints)[0] == cluster


def test_hints_for_zones_do_not_count_on_a_node_without_a_zone():
    endpoints = [hinted(A, zones=["zone-a"]), hinted(B, zones=["zone-b"])]
    assert chosen(*endpoints, place=Place("here"))[0] == [A, B]


states = st.integers(0, READY | SERVING | TERMINATING)
names = st.lists(st.sampled_from(["here", "there", "zone-a", "zone-b"]), max_size=2).map(tuple)
endpoints_ = st.lists(
    st.builds(Endpoint, st.binary(min_size=4, max_size=4), states, st.sampled_from(["here", "there"]), names, names),
    max_size=6,
)


@given(endpoints_)
def test_somebody_is_chosen_whenever_somebody_can_be_reached(endpoints):
    cluster, local = choose(endpoints, HERE)
    reachable = [endpoint for endpoint in endpoints if endpoint.state & READY or endpoint.state & ENDING == ENDING]
    assert bool(cluster) == bool(reachable)
    assert bool(local) == any(item.node == "here" for item in reachable)
    assert all(item in reachable for item in (*cluster, *local))
    if any(endpoint.state & READY for endpoint in endpoints):
        assert all(item.state & READY for item in cluster)
