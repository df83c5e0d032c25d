"""AdminNetworkPolicy and BaselineAdminNetworkPolicy: said here, by `explain`, and by a real packet, in both families."""
# ruff: noqa: E501 - a table has a case in each line

import pytest

from podwire.nriplugins.network.policy.admin_policies import admin_policy_of
from podwire.nriplugins.network.policy.policies import Broken
from podwire.nriplugins.network.policy.regions import ANYTHING, EVERYTHING, Area, areas_of, region_of
from tests.nriplugins.network.policy.test_who_may_reach_whom import ALL, DENY_IN, app, ingress, policy, port

ANY = {"namespaces": ALL}


def team(name):
    return {"namespaces": {"matchLabels": {"team": name}}}


def pods(name):
    return {"pods": {"namespaceSelector": ALL, "podSelector": app(name)}}


def at(number, protocol="TCP"):
    return {"portNumber": {"port": number, "protocol": protocol}}


def span(start, end, protocol="TCP"):
    return {"portRange": {"start": start, "end": end, "protocol": protocol}}


def rule(action, *peers, ports=None, side="from", **more):
    return {"action": action, side: [*peers], **({"ports": ports} if ports else {}), **more}


def out(action, *peers, ports=None):
    return rule(action, *peers, ports=ports, side="to")


def admin(*rules, name="p", priority=10, subject=ANY, kind="AdminNetworkPolicy"):
    sides = {way: [rule for rule in rules if side in rule] for way, side in (("ingress", "from"), ("egress", "to"))}
    spec = {"priority": priority, "subject": subject, **sides}
    return {"kind": kind, "metadata": {"name": name}, "spec": spec}


def baseline(*rules, subject=ANY):
    return admin(*rules, name="default", priority=0, subject=subject, kind="BaselineAdminNetworkPolicy")


def networks(*cidrs):
    return {"networks": [*cidrs]}


OUTSIDE = networks("10.2.16.0/24", "fd00:2:16::/64")
EVERYWHERE = networks("0.0.0.0/0", "::/0")
YES, NO = True, False
CASES = [
    ("deny", [admin(rule("Deny", ANY))], "job", "web", 80, "TCP", NO),
    ("deny is not for the outside", [admin(rule("Deny", ANY))], "outside", "web", 80, "TCP", YES),
    ("deny of a namespace", [admin(rule("Deny", team("dev")))], "tool", "web", 80, "TCP", NO),
    ("deny of another namespace", [admin(rule("Deny", team("dev")))], "mon", "web", 80, "TCP", YES),
    ("the first rule decides", [admin(rule("Allow", team("dev")), rule("Deny", ANY))], "tool", "web", 80, "TCP", YES),
    ("the first rule decides, denying", [admin(rule("Deny", pods("tool")), rule("Allow", ANY))], "tool", "web", 80, "TCP", NO),
    ("the lower priority value decides", [admin(rule("Deny", ANY), name="a", priority=9), admin(rule("Allow", ANY), name="b", priority=3)], "job", "web", 80, "TCP", YES),
    ("of one priority the first name decides", [admin(rule("Deny", ANY), name="b"), admin(rule("Allow", ANY), name="a")], "job", "web", 80, "TCP", YES),
    ("allow stands above a NetworkPolicy", [admin(rule("Allow", team("dev"))), DENY_IN], "tool", "web", 80, "TCP", YES),
    ("deny stands above a NetworkPolicy", [admin(rule("Deny", team("dev"))), ingress()], "tool", "web", 80, "TCP", NO),
    ("what no rule matches is the NetworkPolicy's", [admin(rule("Allow", team("ops"))), DENY_IN], "tool", "web", 80, "TCP", NO),
    ("pass goes on to the NetworkPolicy", [admin(rule("Pass", team("dev")), rule("Deny", ANY)), ingress()], "tool", "web", 80, "TCP", YES),
    ("pass goes on to a denying NetworkPolicy", [admin(rule("Pass", team("dev")), rule("Allow", ANY)), DENY_IN], "tool", "web", 80, "TCP", NO),
    ("pass skips later policies", [admin(rule("Pass", ANY), name="a", priority=1), admin(rule("Deny", ANY), name="b", priority=2)], "tool", "web", 80, "TCP", YES),
    ("pass goes on to the baseline", [admin(rule("Pass", ANY)), baseline(rule("Deny", ANY))], "tool", "web", 80, "TCP", NO),
    ("the baseline denies", [baseline(rule("Deny", ANY))], "tool", "web", 80, "TCP", NO),
    ("the baseline allows, then denies", [baseline(rule("Allow", team("dev")), rule("Deny", ANY))], "tool", "web", 80, "TCP", YES),
    ("a NetworkPolicy replaces the baseline", [baseline(rule("Deny", ANY)), ingress()], "tool", "web", 80, "TCP", YES),
    ("an isolating NetworkPolicy replaces the baseline", [baseline(rule("Allow", ANY)), DENY_IN], "tool", "web", 80, "TCP", NO),
    ("the baseline is for the other direction", [baseline(out("Deny", ANY)), DENY_IN], "web", "tool", 80, "TCP", NO),
    ("a subject by pods", [admin(rule("Deny", ANY), subject=pods("db"))], "job", "db", 80, "TCP", NO),
    ("another pod than the subject", [admin(rule("Deny", ANY), subject=pods("db"))], "job", "web", 80, "TCP", YES),
    ("a subject by namespaces", [admin(rule("Deny", ANY), subject=team("ops"))], "job", "mon", 80, "TCP", NO),
    ("ingress rules leave egress", [admin(rule("Deny", ANY), subject=team("shop"))], "web", "tool", 80, "TCP", YES),
    ("the node reaches its pods", [admin(rule("Deny", ANY))], "node", "web", 80, "TCP", YES),
    # Ports.
    ("a port", [admin(rule("Deny", ANY, ports=[at(80)]))], "job", "web", 80, "TCP", NO),
    ("another port", [admin(rule("Deny", ANY, ports=[at(80)]))], "job", "web", 81, "TCP", YES),
    ("the port of another protocol", [admin(rule("Deny", ANY, ports=[at(80)]))], "job", "web", 80, "UDP", YES),
    ("a denied port leaves ICMP", [admin(rule("Deny", ANY, ports=[at(80)]))], "job", "web", 0, "ICMP", YES),
    ("a denied port leaves SCTP", [admin(rule("Deny", ANY, ports=[at(80)]))], "job", "web", 80, "SCTP", YES),
    ("without ports ICMP is denied", [admin(rule("Deny", ANY))], "job", "web", 0, "ICMP", NO),
    ("a port of SCTP", [admin(rule("Deny", ANY, ports=[at(7, "SCTP")]))], "job", "web", 7, "SCTP", NO),
    ("the last of a range", [admin(rule("Deny", ANY, ports=[span(3000, 3010)]))], "job", "web", 3010, "TCP", NO),
    ("after a range", [admin(rule("Deny", ANY, ports=[span(3000, 3010)]))], "job", "web", 3011, "TCP", YES),
    ("a hole in a denied range", [admin(rule("Allow", ANY, ports=[at(3005)]), rule("Deny", ANY, ports=[span(3000, 3010)]))], "job", "web", 3005, "TCP", YES),
    ("a named port of the subject", [admin(rule("Deny", ANY, ports=[{"namedPort": "http"}]))], "job", "web", 8080, "TCP", NO),
    ("a named port has the container's protocol", [admin(rule("Deny", ANY, ports=[{"namedPort": "http"}]))], "job", "web", 8081, "UDP", NO),
    ("the named port of another pod", [admin(rule("Deny", ANY, ports=[{"namedPort": "http"}]))], "job", "twin", 8080, "TCP", YES),
    ("egress to a named port", [admin(out("Deny", ANY, ports=[{"namedPort": "http"}]))], "db", "twin", 9090, "TCP", NO),
    ("egress to the number that another has", [admin(out("Deny", ANY, ports=[{"namedPort": "http"}]))], "db", "twin", 8080, "TCP", YES),
    ("a passed port with a NetworkPolicy's", [admin(rule("Pass", ANY, ports=[at(80)]), rule("Deny", ANY)), policy(ingress=[{"ports": [port(80)]}])], "job", "web", 80, "TCP", YES),
    ("a NetworkPolicy's port that is denied first", [admin(rule("Deny", ANY)), policy(ingress=[{"ports": [port(80)]}])], "job", "web", 80, "TCP", NO),
    # Egress to addresses.
    ("a network", [admin(out("Deny", OUTSIDE))], "web", "outside", 80, "TCP", NO),
    ("another network", [admin(out("Deny", networks("192.0.2.0/24", "2001:db8::/64")))], "web", "outside", 80, "TCP", YES),
    ("networks are of pods, too", [admin(out("Deny", EVERYWHERE))], "web", "tool", 80, "TCP", NO),
    ("pods first, then networks", [admin(out("Pass", ANY), out("Deny", EVERYWHERE))], "web", "tool", 80, "TCP", YES),
    ("pods first, then networks, outside", [admin(out("Pass", ANY), out("Deny", EVERYWHERE))], "web", "outside", 80, "TCP", NO),
    ("nodes", [admin(out("Deny", {"nodes": ALL}))], "web", "node", 80, "TCP", NO),
    ("nodes by labels", [admin(out("Deny", {"nodes": {"matchLabels": {"kind": "worker"}}}))], "web", "node", 80, "TCP", NO),
    ("nodes with other labels", [admin(out("Deny", {"nodes": {"matchLabels": {"kind": "other"}}}))], "web", "node", 80, "TCP", YES),
    ("nodes are not the outside", [admin(out("Deny", {"nodes": ALL}))], "web", "outside", 80, "TCP", YES),
    ("the baseline denies a network", [baseline(out("Deny", OUTSIDE))], "web", "outside", 53, "UDP", NO),
    # What cannot be read fails closed.
    ("an unknown peer of Deny denies all", [admin(out("Deny", {"domainNames": ["a.test"]}))], "web", "outside", 80, "TCP", NO),
    ("an unknown peer of Pass denies all", [admin(rule("Pass", {}))], "job", "web", 80, "TCP", NO),
    ("an unknown peer of Allow matches nothing", [admin(rule("Allow", {}), rule("Deny", ANY))], "job", "web", 80, "TCP", NO),
]  # fmt: skip


@pytest.mark.parametrize(("given", "source", "destination", "to", "protocol", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])  # fmt: skip
def test_admin_policies_decide_which_pods_connect(world, given, source, destination, to, protocol, expected):
    with world.policies(*given):
        for family in (4, 6):
            assert world.explained(source, destination, to, protocol, family) is expected, "explained"
            assert world.send(source, destination, to, protocol, family) is expected, f"a real packet of IPv{family}"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (admin(priority=1001), "spec.priority: Invalid value: 1001: must be between 0 and 1000"),
        (admin(subject={}), "spec.subject: Required value: must specify namespaces or pods"),
        (admin(subject={"namespaces": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}), "spec.subject.namespaces: "),
    ],
)  # fmt: skip
def test_policy_without_a_readable_subject_is_refused(given, error):
    with pytest.raises(Broken, match="^" + error.replace("[", r"\[")):
        admin_policy_of(given)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (rule("Audit", ANY), 'spec.ingress[0].action: Unsupported value: "Audit": supported values: Allow, Deny, Pass'),
        (rule("Deny"), "spec.ingress[0].from: Required value: must contain at least one peer"),
        (rule("Deny", networks("10.0.0.0/8")), "spec.ingress[0].from[0]: Unsupported value: a peer of networks; the rule fails closed"),
        (out("Deny", networks("10.0.0.0/99")), 'spec.egress[0].to[0].networks[0]: Invalid value: "10.0.0.0/99": must be a valid CIDR value'),
        (rule("Deny", ANY, ports=[{}]), "spec.ingress[0].ports[0]: Required value: must specify portNumber, namedPort or portRange"),
        (rule("Deny", ANY, ports=[span(9, 1)]), "spec.ingress[0].ports[0]: Invalid value: 9 to 1: must be ports between 1 and 65535"),
        (rule("Deny", ANY, ports=[at(9, "ICMP")]), 'spec.ingress[0].ports[0].protocol: Unsupported value: "ICMP"'),
    ],
)  # fmt: skip
def test_rule_that_cannot_be_read_names_its_field_and_fails_closed(given, error):
    read = admin_policy_of(admin(given))
    assert read.problems == (error,)
    [only] = (rule for rules in read.rules.values() for rule in rules)
    assert (only.action, only.is_for_everyone) == ("Deny", True)


def test_areas_cover_a_region_exactly():
    assert areas_of(EVERYTHING) == (ANYTHING,)
    assert areas_of(0) == ()
    one = region_of(
        admin_policy_of(admin(rule("Deny", ANY, ports=[at(80), span(443, 445, "UDP")]))).rules["Ingress"][0].ports, {}
    )
    assert areas_of(one) == (Area(6, 6, 80, 80), Area(17, 17, 443, 445))
    assert areas_of(EVERYTHING & ~one) == (
        Area(1, 5, 0, 65535),
        Area(6, 6, 0, 79),
        Area(6, 6, 81, 65535),
        Area(7, 16, 0, 65535),
        Area(17, 17, 0, 442),
        Area(17, 17, 446, 65535),
        Area(18, 255, 0, 65535),
    )  # fmt: skip
