"""Decisions about redirection, without a kernel."""

import pytest

from podwire.linux.nft import expressions
from podwire.nriplugins.network.mesh import Plan, plan, read
from podwire.nriplugins.network.mesh.ruleset import table
from podwire.nriplugins.network.resources import MESH, Pod, Why

OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
WEB = Pod("default", "web", labels={"app": "web"})
IN, OUT = {"port": 15006}, {"port": 15001}


def resource(name="a", *, created=OLD, namespace="default", selector="web", uid=1337, **spec):
    return read(
        {
            "kind": "PodMesh",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created},
            "spec": {"podSelector": {"matchLabels": {"app": selector}}, "proxy": {"uid": uid}, **spec},
        }
    )


def reported(planned):
    return [(problem.resource.name, problem.why, problem.field) for problem in planned.problems]


def test_a_pod_without_resources_has_no_table():
    planned = plan(WEB, [resource(selector="db", inbound=IN), resource(namespace="other", inbound=IN)])
    assert planned == Plan()
    assert not planned
    assert table(planned) is None


def test_a_pod_has_the_one_that_it_names():
    pod = WEB._replace(annotations={MESH: "named,gone"})
    planned = plan(pod, [resource("named", selector="db", inbound=IN)])
    assert planned.inbound is not None
    assert reported(planned) == [("gone", Why.MISSING, "")]


@pytest.mark.parametrize(
    ("one", "other"), [(("b", OLD), ("a", NEW)), (("a", OLD), ("b", OLD))], ids=["the older", "by name"]
)
def test_of_two_that_redirect_one_direction_the_senior_is_taken(one, other):
    first = resource(one[0], created=one[1], outbound=OUT)
    second = resource(other[0], created=other[1], inbound=IN, outbound={"port": 9})
    for order in ([first, second], [second, first]):
        planned = plan(WEB, order)
        assert (planned.outbound.direction.port, planned.inbound.direction.port) == (15001, 15006)
        [trouble] = planned.problems
        assert (trouble.resource.name, trouble.why, trouble.fatal) == (other[0], Why.CONFLICT, False)
        assert str(trouble) == (
            f"PodMesh default/{other[0]}: spec.outbound: outbound connections go to port 15001, "
            f"as PodMesh default/{one[0]} says, which is older"
        )


def test_the_same_of_two_is_shared():
    planned = plan(WEB, [resource("a", outbound=OUT), resource("b", outbound=OUT)])
    assert planned.problems == ()
    assert [owner.name for owner in planned.outbound.owners] == ["a", "b"]


def test_another_proxy_on_the_same_port_is_a_conflict():
    planned = plan(WEB, [resource("a", outbound=OUT), resource("b", outbound=OUT, uid=7)])
    assert reported(planned) == [("b", Why.CONFLICT, "spec.outbound")]


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_a_broken_resource_affects_only_itself(policy):
    broken = resource("broken", created=OLD, outbound={"port": 0}, failurePolicy=policy)
    planned = plan(WEB, [broken, resource("good", created=NEW, outbound=OUT)])
    assert planned.outbound.direction.port == 15001
    [trouble] = planned.problems
    assert (trouble.why, trouble.field, trouble.fatal) == (Why.BROKEN, "spec.outbound.port", policy == "Fail")


def chains(*resources):
    return {chain.name: chain for chain in table(plan(WEB, resources)).chains}


def names(rule):
    return [name for name, _ in expressions.expressions_of(rule)]


def test_chains_exist_only_for_redirected_directions():
    assert set(chains(resource(inbound=IN))) == {"inbound", "guard"}
    assert set(chains(resource(outbound=OUT))) == {"outbound", "guard"}
    assert set(chains(resource(inbound=IN, outbound=OUT))) == {"inbound", "outbound", "guard"}
    elsewhere = read(
        {
            "kind": "PodMesh",
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"podSelector": {}, "proxy": {"addresses": ["10.1.0.1"]}, "outbound": OUT},
        }
    )
    assert set(chains(elsewhere)) == {"outbound"}, "the ports of a proxy elsewhere are not ours to guard"


def test_redirection_is_the_last_word():
    made = chains(resource(inbound=IN, outbound={**OUT, "excludePorts": [1], "excludeUIDs": [2]}))
    for name in ("inbound", "outbound"):
        *before, last = made[name].rules
        assert names(last)[-1] == "redir"
        assert all(names(item)[-1] == "immediate" for item in before), "all others let pass"


def test_one_port_for_both_directions_is_guarded_once():
    assert len(chains(resource(inbound=OUT, outbound=OUT))["guard"].rules) == 1


def test_duplicate_exclusions_have_one_rule():
    once = chains(resource(outbound={**OUT, "excludePorts": [1], "excludeUIDs": [2]}))
    twice = chains(resource(outbound={**OUT, "excludePorts": [1, 1], "excludeUIDs": [2, 1337, 2]}))
    assert once == twice
