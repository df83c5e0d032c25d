"""NetworkPolicies as a table of who may reach whom: said here, by `explain`, and by a real packet, in both families."""
# ruff: noqa: E501 - a table has a case in each line

import pytest

ALL = {}


def policy(selector=ALL, *, ingress=None, egress=None, types=None, namespace="shop", name="p"):
    spec = {"podSelector": selector}
    if ingress is not None:
        spec["ingress"] = ingress
    if egress is not None:
        spec["egress"] = egress
    if types is not None:
        spec["policyTypes"] = types
    return {"metadata": {"namespace": namespace, "name": name}, "spec": spec}


def app(name):
    return {"matchLabels": {"app": name}}


def where(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": [*values]} if values else {})}]}


def pods(selector):
    return {"podSelector": selector}


def spaces(selector, inner=None):
    return {"namespaceSelector": selector} | ({} if inner is None else {"podSelector": inner})


def block(four, six, *excepts):
    """The same in both families: peers for each, with the exceptions of each."""
    return [
        {"ipBlock": {"cidr": cidr, "except": [item for item in excepts if (":" in item) == (":" in cidr)]}}
        for cidr in (four, six)
    ]


EVERYWHERE = block("0.0.0.0/0", "::/0")
PODS_ONLY = block("10.0.0.0/8", "fd00::/16")
OUTSIDE = block("10.2.16.0/24", "fd00:2:16::/64")
DENY_IN = policy(name="deny", types=["Ingress"])
DENY_OUT = policy(name="deny-out", types=["Egress"])
DENY_ALL = policy(name="deny-all", types=["Ingress", "Egress"])


def ingress(*peers, ports=None, to=ALL, **more):
    rule = ({"from": [*peers]} if peers else {}) | ({"ports": ports} if ports else {})
    return policy(to, ingress=[rule], **more)


def egress(*peers, ports=None, of=ALL, **more):
    rule = ({"to": [*peers]} if peers else {}) | ({"ports": ports} if ports else {})
    return policy(of, egress=[rule], types=["Egress"], **more)


def port(number=None, protocol=None, end=None):
    found = {"port": number, "protocol": protocol, "endPort": end}
    return {key: value for key, value in found.items() if value is not None}


YES, NO = True, False
CASES = [
    # Default: all, and deny.
    ("nothing is isolated", [], "job", "web", 80, "TCP", YES),
    ("nothing is isolated for UDP", [], "tool", "web", 53, "UDP", YES),
    ("nothing is isolated for SCTP", [], "mon", "web", 7, "SCTP", YES),
    ("default deny of ingress", [DENY_IN], "job", "web", 80, "TCP", NO),
    ("default deny of ingress for UDP", [DENY_IN], "job", "web", 53, "UDP", NO),
    ("default deny of ingress for SCTP", [DENY_IN], "job", "web", 7, "SCTP", NO),
    ("denied ingress leaves egress", [DENY_IN], "web", "tool", 80, "TCP", YES),
    ("a policy is of its namespace", [DENY_IN], "job", "tool", 80, "TCP", YES),
    ("default deny of egress", [DENY_OUT], "web", "tool", 80, "TCP", NO),
    ("denied egress leaves ingress", [DENY_OUT], "tool", "web", 80, "TCP", YES),
    ("denied egress within the namespace", [DENY_OUT], "web", "db", 80, "UDP", NO),
    ("denied both, in", [DENY_ALL], "tool", "web", 80, "TCP", NO),
    ("denied both, out", [DENY_ALL], "web", "tool", 80, "SCTP", NO),
    ("denied for the outside", [DENY_IN], "outside", "web", 80, "TCP", NO),
    ("denied to the outside", [DENY_OUT], "web", "outside", 80, "UDP", NO),
    ("an empty rule allows everybody", [ingress()], "outside", "web", 80, "TCP", YES),
    ("an empty egress rule allows everything", [egress()], "web", "outside", 7, "SCTP", YES),
    ("ingress of none isolates", [policy(ingress=[])], "job", "web", 80, "TCP", NO),
    ("types are ingress alone without egress rules", [policy()], "web", "tool", 80, "TCP", YES),
    ("types are both with egress rules", [policy(egress=[{}])], "job", "web", 80, "TCP", NO),
    ("a pod that is not selected", [policy(app("db"))], "job", "web", 80, "TCP", YES),
    ("the node reaches its pods", [DENY_ALL], "node", "web", 80, "TCP", YES),
    ("the node reaches its pods by UDP", [DENY_ALL], "node", "web", 53, "UDP", YES),
    ("a pod does not reach its node", [DENY_OUT], "web", "node", 80, "TCP", NO),
    ("a pod reaches its node by its block", [egress(*EVERYWHERE)], "web", "node", 80, "TCP", YES),
    # Pods and namespaces.
    ("a pod of the same namespace", [ingress(pods(app("job")))], "job", "web", 80, "TCP", YES),
    ("another pod of the same namespace", [ingress(pods(app("job")))], "db", "web", 80, "TCP", NO),
    ("pods are of the policy's namespace", [ingress(pods(app("web")), to=app("db"))], "twin", "db", 80, "TCP", NO),
    ("all pods of the same namespace", [ingress(pods(ALL))], "db", "web", 80, "UDP", YES),
    ("all pods of the same namespace, not others", [ingress(pods(ALL))], "tool", "web", 80, "UDP", NO),
    ("a namespace", [ingress(spaces({"matchLabels": {"team": "ops"}}))], "mon", "web", 80, "TCP", YES),
    ("another namespace", [ingress(spaces({"matchLabels": {"team": "ops"}}))], "tool", "web", 80, "TCP", NO),
    ("the own namespace does not match", [ingress(spaces({"matchLabels": {"team": "ops"}}))], "db", "web", 80, "TCP", NO),
    ("a namespace by its name", [ingress(spaces(where("kubernetes.io/metadata.name", "In", "dev")))], "tool", "web", 80, "TCP", YES),
    ("all namespaces, not the outside", [ingress(spaces(ALL))], "outside", "web", 80, "TCP", NO),
    ("all namespaces", [ingress(spaces(ALL))], "tool", "web", 80, "SCTP", YES),
    ("pod and namespace together", [ingress(spaces(where("kind", "Exists"), app("web")))], "twin", "db", 80, "TCP", YES),
    ("the pod but not the namespace", [ingress(spaces(where("kind", "Exists"), app("web")), to=app("db"))], "web", "db", 80, "TCP", NO),
    ("the namespace but not the pod", [ingress(spaces(where("kind", "Exists"), app("web")))], "tool", "db", 80, "TCP", NO),
    ("pod or namespace", [ingress(pods(app("job")), spaces({"matchLabels": {"team": "dev"}}))], "tool", "db", 80, "TCP", YES),
    ("not in", [ingress(spaces(where("team", "NotIn", "ops")))], "mon", "db", 80, "TCP", NO),
    ("not in is also without", [ingress(pods(where("tier", "NotIn", "front")))], "db", "web", 80, "TCP", YES),
    ("does not exist", [ingress(pods(where("tier", "DoesNotExist")))], "job", "web", 80, "TCP", NO),
    ("egress to a pod", [egress(pods(app("db")), of=app("web"))], "web", "db", 80, "TCP", YES),
    ("egress to another pod", [egress(pods(app("db")), of=app("web"))], "web", "job", 80, "TCP", NO),
    ("egress to a namespace", [egress(spaces(where("team", "In", "ops", "dev")))], "web", "mon", 80, "UDP", YES),
    # Both ends.
    ("one end says yes, the other no", [egress(pods(app("db")), of=app("web")), DENY_IN], "web", "db", 80, "TCP", NO),
    ("both ends say yes", [egress(pods(app("db")), of=app("web")), ingress(pods(app("web")), to=app("db"), name="q")], "web", "db", 80, "TCP", YES),
    ("policies add up", [DENY_IN, ingress(pods(app("job")))], "job", "web", 80, "TCP", YES),
    ("two policies allow two peers", [ingress(pods(app("job"))), ingress(pods(app("db")), name="q")], "db", "web", 80, "TCP", YES),
    ("rules of two policies do not mix", [ingress(pods(app("job")), ports=[port(80)]), ingress(pods(app("db")), ports=[port(81)], name="q")], "job", "web", 81, "TCP", NO),
    # Ports.
    ("a port", [ingress(ports=[port(80)])], "tool", "web", 80, "TCP", YES),
    ("another port", [ingress(ports=[port(80)])], "tool", "web", 81, "TCP", NO),
    ("a port is TCP's unless said", [ingress(ports=[port(80)])], "tool", "web", 80, "UDP", NO),
    ("a port of UDP", [ingress(pods(ALL), ports=[port(53, "UDP")])], "db", "web", 53, "UDP", YES),
    ("a port of SCTP", [ingress(pods(ALL), ports=[port(7, "SCTP")])], "db", "web", 7, "SCTP", YES),
    ("another port of SCTP", [ingress(pods(ALL), ports=[port(7, "SCTP")])], "db", "web", 8, "SCTP", NO),
    ("a protocol without a port", [ingress(pods(ALL), ports=[port(None, "UDP")])], "db", "web", 999, "UDP", YES),
    ("another protocol", [ingress(pods(ALL), ports=[port(None, "UDP")])], "db", "web", 999, "TCP", NO),
    ("anybody's protocol", [ingress(ports=[port(None, "SCTP")])], "outside", "web", 9, "SCTP", YES),
    ("the first of a range", [ingress(pods(ALL), ports=[port(3000, end=3010)])], "db", "web", 3000, "TCP", YES),
    ("the last of a range", [ingress(ports=[port(3000, end=3010)])], "tool", "web", 3010, "TCP", YES),
    ("after a range", [ingress(pods(ALL), ports=[port(3000, end=3010)])], "db", "web", 3011, "TCP", NO),
    ("before a range", [ingress(ports=[port(3000, end=3010)])], "tool", "web", 2999, "TCP", NO),
    ("ranges that overlap", [ingress(ports=[port(3000, end=3010), port(3005, end=3020), port(3015)])], "tool", "web", 3018, "TCP", YES),
    ("a named port", [ingress(ports=[port("http")])], "tool", "web", 8080, "TCP", YES),
    ("a named port is TCP's unless said", [ingress(ports=[port("http")])], "tool", "web", 8081, "UDP", NO),
    ("a named port of UDP", [ingress(ports=[port("http", "UDP")])], "tool", "web", 8081, "UDP", YES),
    ("a name that the pod does not have", [ingress(ports=[port("http")])], "web", "db", 8080, "TCP", NO),
    ("egress to a named port", [egress(spaces(ALL), ports=[port("http")])], "db", "twin", 9090, "TCP", YES),
    ("egress to the number that another has", [egress(spaces(ALL), ports=[port("http")])], "db", "twin", 8080, "TCP", NO),
    ("egress to anybody's named port", [egress(ports=[port("sql")])], "web", "twin", 15432, "TCP", YES),
    ("egress to a named port in a block", [egress(*PODS_ONLY, ports=[port("http")])], "db", "twin", 9090, "TCP", YES),
    ("egress to another's named port in a block", [egress(*PODS_ONLY, ports=[port("http")])], "db", "job", 9090, "TCP", NO),
    # What has no ports.
    ("default deny of ICMP", [DENY_IN], "job", "web", 0, "ICMP", NO),
    ("a rule without ports allows ICMP", [ingress(pods(ALL))], "job", "web", 0, "ICMP", YES),
    ("a rule with ports does not allow ICMP", [ingress(ports=[port(None, "UDP"), port(80)])], "job", "web", 0, "ICMP", NO),
    ("a block without ports allows ICMP", [egress(*OUTSIDE)], "web", "outside", 0, "ICMP", YES),
    ("a block with ports does not allow ICMP", [egress(*OUTSIDE, ports=[port(1, end=65535)])], "web", "outside", 0, "ICMP", NO),
    # Blocks.
    ("a block", [ingress(*OUTSIDE)], "outside", "web", 80, "TCP", YES),
    ("a block that is another", [ingress(*block("192.0.2.0/24", "2001:db8::/64"))], "outside", "web", 80, "TCP", NO),
    ("an exception", [ingress(*block("10.0.0.0/8", "fd00::/16", "10.2.16.0/28", "fd00:2:16::/80"))], "outside", "web", 80, "TCP", NO),
    ("beside an exception", [ingress(*block("10.0.0.0/8", "fd00::/16", "10.2.16.0/31", "fd00:2:16::/127"))], "outside", "web", 80, "TCP", YES),
    ("an exception that another rule allows", [ingress(*block("10.0.0.0/8", "fd00::/16", "10.2.16.0/28", "fd00:2:16::/80")), ingress(*OUTSIDE, name="q")], "outside", "web", 80, "UDP", YES),
    ("a block with a port", [ingress(*EVERYWHERE, ports=[port(443), port(53, "UDP")])], "outside", "web", 53, "UDP", YES),
    ("a block with another port", [ingress(*EVERYWHERE, ports=[port(443), port(53, "UDP")])], "outside", "web", 53, "TCP", NO),
    ("blocks that overlap, with ports of their own", [ingress(*EVERYWHERE, ports=[port(80)]), ingress(*OUTSIDE, ports=[port(81, end=90)], name="q")], "outside", "web", 85, "TCP", YES),
    ("a block is compared with pods too", [ingress(*PODS_ONLY)], "tool", "web", 80, "TCP", YES),
    ("egress to a block", [egress(*OUTSIDE)], "web", "outside", 80, "SCTP", YES),
    ("egress to a block is not to others", [egress(*OUTSIDE)], "web", "tool", 80, "TCP", NO),
    ("egress to all but a block", [egress(*block("0.0.0.0/0", "::/0", "10.2.0.0/16", "fd00:2::/32"))], "web", "outside", 80, "TCP", NO),
]  # fmt: skip


@pytest.mark.parametrize(("given", "source", "destination", "to", "protocol", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])  # fmt: skip
def test_policies_decide_which_pods_connect(world, given, source, destination, to, protocol, expected):
    with world.policies(*given):
        for family in (4, 6):
            assert world.explained(source, destination, to, protocol, family) is expected, "explained"
            assert world.send(source, destination, to, protocol, family) is expected, f"a real packet of IPv{family}"
