"""Decisions about routes, without a kernel."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.linux.values import Route
from podwire.nriplugins.network.resources import ROUTES, Head, Pod, Why
from podwire.nriplugins.network.routes import plan, read
from podwire.nriplugins.network.routes.plan import NOTHING, PROTOCOL, KernelState, Plan, diff, place

OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
WEB = Pod("default", "web", labels={"app": "web"}, ips=(ip_address("10.1.0.5"), ip_address("fd01::5")))


def resource(name="a", *, created=OLD, namespace="default", selector="web", routes=None, **spec):
    chosen = {} if selector is None else {"podSelector": {"matchLabels": {"app": selector}}}
    return read(
        {
            "kind": "PodRoute",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created},
            "spec": {**chosen, "routes": routes or [{"destinations": ["10.20.0.0/16"], "via": "10.1.0.2"}], **spec},
        }
    )


def via(gateway, *destinations, **rest):
    return [{"destinations": list(destinations or ["10.20.0.0/16"]), "via": gateway, **rest}]


def reported(planned):
    return [(problem.resource.name, problem.why, problem.field) for problem in planned.problems]


def gateways(planned):
    return {str(item.route.destination): str(item.route.gateway) for item in planned.routes.values()}


@pytest.mark.parametrize(
    ("made", "concerned"),
    [
        (resource(), True),
        (resource(selector="db"), False),
        (resource(namespace="other"), False),
        (resource(selector=None), False),
        (resource("named", selector=None), True),
        (resource("named", selector="db"), True),
        (resource("named", namespace="other"), False),
    ],
    ids=["selected", "not selected", "elsewhere", "no selector", "named", "named, not selected", "named elsewhere"],
)
def test_a_resource_concerns_pods_that_it_selects_or_that_name_it(made, concerned):
    here = resource("named", selector=None, routes=via("10.1.0.9", "10.99.0.0/16"))
    pod = WEB._replace(annotations={ROUTES: " named ,"})
    planned = plan(pod, [made] if made.head.name == "named" and concerned else [made, here])
    assert ("10.20.0.0/16" in gateways(planned)) is concerned


def test_a_name_without_a_resource_is_a_fatal_problem():
    pod = WEB._replace(annotations={ROUTES: "here,gone,gone"})
    planned = plan(pod, [resource("here")])
    [trouble] = planned.problems
    assert (trouble.why, trouble.fatal, str(trouble)) == (
        Why.MISSING, True, "PodRoute default/gone: the pod names it, and it does not exist",
    )  # fmt: skip
    assert gateways(planned) == {"10.20.0.0/16": "10.1.0.2"}


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_a_broken_resource_affects_only_itself(policy):
    broken = resource("broken", routes=via("nowhere"), failurePolicy=policy)
    planned = plan(WEB, [broken, resource("good")])
    [trouble] = planned.problems
    assert (trouble.why, trouble.field, trouble.fatal) == (Why.BROKEN, "spec.routes[0].via", policy == "Fail")
    assert gateways(planned) == {"10.20.0.0/16": "10.1.0.2"}
    assert plan(WEB._replace(labels={}), [broken]) == NOTHING, "other pods have nothing to do with it"


@pytest.mark.parametrize(
    ("one", "other"), [(("b", OLD), ("a", NEW)), (("a", OLD), ("b", OLD))], ids=["the older", "by name"]
)
def test_the_older_of_two_routes_to_one_destination_wins(one, other):
    first = resource(one[0], created=one[1], routes=via("10.1.0.2"))
    second = resource(other[0], created=other[1], routes=via("10.1.0.3") + via("10.1.0.3", "10.30.0.0/16"))
    for order in ([first, second], [second, first]):
        planned = plan(WEB, order)
        assert gateways(planned) == {"10.20.0.0/16": "10.1.0.2", "10.30.0.0/16": "10.1.0.3"}
        assert reported(planned) == [(other[0], Why.CONFLICT, "spec.routes[0].destinations[0]")]
        [trouble] = planned.problems
        assert trouble.reason == (
            f"10.20.0.0/16 goes via 10.1.0.2 by eth0, as PodRoute default/{one[0]} says, which is older"
        )
        assert not trouble.fatal


@pytest.mark.parametrize(
    "other",
    [
        {"routes": via("10.1.0.3", metric=5)},
        {"routes": via("10.1.0.3"), "table": 100},
        {"routes": via("10.1.0.3", "10.20.0.0/17")},
        {"routes": via("10.1.0.2")},
    ],
    ids=["metric", "table", "prefix", "the same"],
)
def test_no_conflict_is_seen_where_there_is_none(other):
    assert plan(WEB, [resource("a"), resource("b", **other)]).problems == ()


def test_the_same_route_of_two_resources_is_shared():
    [wanted] = plan(WEB, [resource("a"), resource("b")]).routes.values()
    assert [owner.name for owner in wanted.owners] == ["a", "b"]


def test_the_default_metric_of_ipv6_is_a_place_like_its_number():
    ways = via("fd01::2", "fd20::/64"), via("fd01::3", "fd20::/64", metric=1024)
    planned = plan(WEB, [resource("a", routes=ways[0]), resource("b", routes=ways[1])])
    assert reported(planned) == [("b", Why.CONFLICT, "spec.routes[0].destinations[0]")]


def test_two_tables_for_one_source_are_a_conflict():
    planned = plan(
        WEB,
        [resource("a", table=100, sources=["PodIPs"]), resource("b", table=200, sources=["10.1.0.5/32", "10.0.0.0/8"])],
    )
    assert reported(planned) == [("b", Why.CONFLICT, "spec.sources")]
    rules = {str(at): (each.rule.table, each.rule.priority) for at, each in planned.rules.items()}
    assert rules == {
        "10.1.0.5/32": (100, 11000),
        "fd01::5/128": (100, 11000),
        "10.0.0.0/8": (200, 11024),
    }, "the longest prefix is asked first"


LINKS = {"eth0": 2}
DESTINATIONS = st.sampled_from(["10.20.0.0/16", "10.30.0.0/16", "fd20::/64"])


def with_family(destination, host):
    return via(f"fd01::{host}" if ":" in destination else f"10.1.0.{host}", destination)[0]


SPECS = st.lists(
    st.builds(with_family, DESTINATIONS, st.integers(2, 4)),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each["destinations"][0],
)
RESOURCES = st.lists(
    st.builds(
        lambda name, created, ways, table: resource(name, created=created, routes=ways, table=table),
        st.sampled_from("abcde"),
        st.sampled_from([OLD, NEW]),
        SPECS,
        st.sampled_from([254, 700]),
    ),
    max_size=4,
    unique_by=lambda each: each.head.name,
)


def done(there, changes):
    """State of a namespace after these changes."""
    gone = {place(route) for route in changes.drop_routes} | {place(change.route) for change in changes.replace}
    kept = [route for route in there.routes if place(route) not in gone]
    return KernelState(LINKS, (*kept, *(change.route for change in (*changes.replace, *changes.add))), ())


@given(RESOURCES, RESOURCES)
def test_from_any_state_to_any_other_and_then_nothing_more(before, after):
    there = done(KernelState(LINKS, (), ()), diff(plan(WEB, before), KernelState(LINKS, (), ())))
    wanted = plan(WEB, after)
    reached = done(there, diff(wanted, there))
    assert {place(route) for route in reached.routes} == set(wanted.routes)
    assert len(diff(wanted, reached)) == 0
    assert len(diff(NOTHING, reached)) == len(reached.routes)


@given(RESOURCES, st.randoms())
def test_the_order_in_which_resources_are_known_does_not_matter(resources, random):
    mixed = list(resources)
    random.shuffle(mixed)
    assert plan(WEB, mixed) == plan(WEB, resources)


def test_a_foreign_route_is_neither_changed_nor_deleted():
    other = Route(ip_network("10.20.0.0/16"), ip_address("10.1.0.9"), 2, protocol=4)
    changes = diff(plan(WEB, [resource()]), KernelState(LINKS, (other,), ()))
    assert len(changes) == 0
    [trouble] = changes.problems
    assert "somebody else made (protocol 4)" in trouble.reason


def test_a_plan_is_true_when_something_is_to_be_there():
    assert not Plan()
    assert plan(WEB, [resource()])
    assert Route(ip_network("10.0.0.0/8")).protocol != PROTOCOL, "CNI plugins' routes are not ours"
    assert Head(kind="PodRoute", namespace="a", name="b").fails
