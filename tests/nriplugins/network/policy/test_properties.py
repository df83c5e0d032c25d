"""After any sequence of changes, the documentation, `explain`, the sets and the kernel agree."""
# ruff: noqa: E501 - strategies read best in one line each

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.nriplugins.network.policy import Content, Kernel, LocalPod, Model, explain
from podwire.nriplugins.network.policy.admin_policies import admin_policy_of
from podwire.nriplugins.network.policy.elements import key_of
from podwire.nriplugins.network.policy.policies import policy_of
from podwire.nriplugins.network.policy.values import PROTOCOLS, Attachment, Pod

SPACES = ("a", "b")
KEYS, VALUES = ("x", "y"), ("1", "2")
NAMES = ("http", "dns")
PORTS = (53, 80, 443, 8080)
IPS = {4: [ip_address(f"10.0.{high}.{low}") for high in (0, 1) for low in (1, 2, 3, 4)]}
IPS[6] = [ip_address(f"fd00::{high}:{low}") for high in (0, 1) for low in (1, 2, 3, 4)]
NODES = ("n1", "n2")
NODE_IPS = {
    name: {ip_address(address) for address in ips}
    for name, ips in zip(NODES, (("10.0.0.200", "fd00::0:200"), ("192.0.2.1",)), strict=True)
}
STRANGERS = [ip_address(name) for name in ("10.0.0.200", "10.0.1.200", "192.0.2.1", "fd00::0:200", "2001:db8::1")]

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
requirement = st.one_of(
    st.builds(lambda key, values: {"key": key, "operator": "In", "values": values}, st.sampled_from(KEYS), st.lists(st.sampled_from(VALUES), min_size=1, max_size=2)),
    st.builds(lambda key, values: {"key": key, "operator": "NotIn", "values": values}, st.sampled_from(KEYS), st.lists(st.sampled_from(VALUES), min_size=1, max_size=2)),
    st.builds(lambda key, operator: {"key": key, "operator": operator}, st.sampled_from(KEYS), st.sampled_from(("Exists", "DoesNotExist"))),
)  # fmt: skip
selector = st.one_of(
    st.just({}),
    st.sampled_from([{"matchLabels": {key: value}} for key in KEYS for value in VALUES]),
    st.builds(lambda rest: {"matchExpressions": [rest]}, requirement),
    st.builds(lambda equal, rest: {"matchLabels": equal, "matchExpressions": [rest]}, labels, requirement),
)
cidrs = st.sampled_from(
    [
        {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/24"]},
        {"cidr": "10.0.0.0/16", "except": ["10.0.0.2/32", "10.0.1.0/25"]},
        {"cidr": "10.0.1.0/24"},
        {"cidr": "10.0.0.2/31"},
        {"cidr": "::/0"},
        {"cidr": "fd00::/64", "except": ["fd00::1:0/112"]},
    ]
)
peer = st.one_of(
    st.builds(lambda pods: {"podSelector": pods}, selector),
    st.builds(lambda spaces: {"namespaceSelector": spaces}, selector),
    st.builds(lambda spaces, pods: {"namespaceSelector": spaces, "podSelector": pods}, selector, selector),
    st.builds(lambda block: {"ipBlock": block}, cidrs),
)
port = st.one_of(
    st.builds(lambda number, protocol: {"port": number, "protocol": protocol}, st.sampled_from(PORTS), st.sampled_from([*PROTOCOLS])),
    st.builds(lambda name, protocol: {"port": name, "protocol": protocol}, st.sampled_from(NAMES), st.sampled_from([*PROTOCOLS])),
    st.builds(lambda first, more: {"port": first, "endPort": first + more}, st.sampled_from((50, 60, 400)), st.sampled_from((0, 30, 100))),
    st.sampled_from([{}, {"protocol": "UDP"}, {"protocol": "SCTP"}]),
)  # fmt: skip


def rules(side):
    return st.lists(
        st.builds(
            lambda peers, ports: ({side: peers} if peers else {}) | ({"ports": ports} if ports else {}),
            st.lists(peer, max_size=2),
            st.lists(port, max_size=2),
        ),
        max_size=2,
    )


manifests = st.builds(
    lambda namespace, name, pods, types, ingress, egress: {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"podSelector": pods, "policyTypes": types, "ingress": ingress, "egress": egress},
    },
    st.sampled_from(SPACES),
    st.sampled_from(("p", "q", "r")),
    selector,
    st.sampled_from((["Ingress"], ["Egress"], ["Ingress", "Egress"], [])),
    rules("from"),
    rules("to"),
)


both = st.builds(lambda spaces, pods: {"pods": {"namespaceSelector": spaces, "podSelector": pods}}, selector, selector)
subject = st.one_of(st.builds(lambda spaces: {"namespaces": spaces}, selector), both)
outside = st.one_of(
    st.builds(lambda own: {"nodes": own}, selector),
    st.builds(
        lambda given: {"networks": given},
        st.lists(st.sampled_from(("10.0.0.0/16", "10.0.1.0/25", "0.0.0.0/0", "fd00::/64", "10.0.0.200/32")), min_size=1, max_size=2, unique=True),
    ),
)  # fmt: skip
admin_port = st.one_of(
    st.builds(lambda number, protocol: {"portNumber": {"port": number, "protocol": protocol}}, st.sampled_from(PORTS), st.sampled_from([*PROTOCOLS])),
    st.builds(lambda first, more, protocol: {"portRange": {"start": first, "end": first + more, "protocol": protocol}}, st.sampled_from((50, 60, 400)), st.sampled_from((1, 30, 100)), st.sampled_from([*PROTOCOLS])),
    st.builds(lambda name: {"namedPort": name}, st.sampled_from(NAMES)),
)  # fmt: skip


def admin_rules(side, peers, actions):
    return st.lists(
        st.builds(
            lambda action, peers, ports: {"action": action, side: peers} | ({"ports": ports} if ports else {}),
            st.sampled_from(actions),
            st.lists(peers, min_size=1, max_size=2),
            st.lists(admin_port, max_size=2),
        ),
        max_size=3,
    )


def admin_policies(kind, names, actions):
    return st.builds(
        lambda name, priority, subject, ingress, egress: {
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"priority": priority, "subject": subject, "ingress": ingress, "egress": egress},
        },
        st.sampled_from(names),
        st.integers(0, 3) if kind == "AdminNetworkPolicy" else st.just(0),
        subject,
        admin_rules("from", subject, actions),
        admin_rules("to", st.one_of(subject, outside), actions),
    )


ADMIN_KEYS = [("AdminNetworkPolicy", name) for name in "pqr"] + [("BaselineAdminNetworkPolicy", "default")]
admin_manifests = st.one_of(
    admin_policies("AdminNetworkPolicy", "pqr", ("Allow", "Deny", "Pass")),
    admin_policies("BaselineAdminNetworkPolicy", ["default"], ("Allow", "Deny")),
)


@st.composite
def pods(draw):
    number = draw(st.integers(0, 5))
    ports = draw(
        st.dictionaries(st.tuples(st.sampled_from([*PROTOCOLS]), st.sampled_from(NAMES)), st.sampled_from(PORTS))
    )
    return Pod(
        uid=f"pod-{number}",
        namespace=draw(st.sampled_from(SPACES)),
        name=f"pod-{number}",
        labels=draw(labels),
        ips=(IPS[4][number], IPS[6][number]) if draw(st.integers(0, 9)) else (),
        node=draw(st.sampled_from(("here", "there"))),
        ports=ports,
        host_network=not draw(st.integers(0, 9)),
    )


# The documentation, read plainly.


def selects(selector, own):
    if any(own.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for expression in selector.get("matchExpressions", []):
        value = own.get(expression["key"])
        fits = {
            "In": value in expression.get("values", []),
            "NotIn": value not in expression.get("values", []),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not fits[expression["operator"]]:
            return False
    return True


class Documented:
    """The cluster as a reader of the documentation would have it on paper."""

    def __init__(self):
        self.pods, self.spaces, self.policies, self.admin, self.nodes = {}, {}, {}, {}, {}

    def may(self, source, destination, protocol, number):
        """Addresses. For a connection both the egress of the source and the ingress of the destination must allow it."""
        from_, to = self.at(source), self.at(destination)
        if from_ is not None and to is not None and from_.uid == to.uid:
            return True
        out = from_ is None or self.allowed("Egress", from_, to, destination, to, protocol, number)
        into = to is None or self.allowed("Ingress", to, from_, source, to, protocol, number)
        return out and into

    def at(self, address):
        found = [pod for pod in self.pods.values() if address in pod.ips and not pod.host_network]
        return found[-1] if found else None

    def allowed(self, direction, pod, other, address, receiver, protocol, number):
        isolating = [
            policy
            for policy in self.policies.values()
            if policy["metadata"]["namespace"] == pod.namespace
            and selects(policy["spec"]["podSelector"], pod.labels)
            and direction in self.types(policy["spec"])
        ]
        asked = (direction, pod, other, address, receiver, protocol, number)
        action = self.ordered("AdminNetworkPolicy", *asked)
        if action in ("Allow", "Deny"):
            return action == "Allow"
        if not isolating:
            return self.ordered("BaselineAdminNetworkPolicy", *asked) != "Deny"
        side = "from" if direction == "Ingress" else "to"
        return any(
            self.peer(item, rule.get(side), other, address) and self.port(rule.get("ports"), receiver, protocol, number)
            for item in isolating
            for rule in item["spec"][direction.lower()]
        )

    def ordered(self, kind, direction, pod, other, address, receiver, protocol, number):
        """The action of the first rule that matches, by priority, name and place."""
        found = [item for item in self.admin.values() if item["kind"] == kind]
        for policy in sorted(found, key=lambda each: (each["spec"].get("priority", 0), each["metadata"]["name"])):
            if not self.admin_pods(policy["spec"]["subject"], pod):
                continue
            for rule in policy["spec"][direction.lower()]:
                peers = rule["from" if direction == "Ingress" else "to"]
                if any(self.admin_peer(peer, other, address) for peer in peers) and self.admin_port(
                    rule.get("ports"), receiver, protocol, number
                ):
                    return rule["action"]
        return None

    def admin_pods(self, given, pod):
        space = {"kubernetes.io/metadata.name": pod.namespace} | self.spaces.get(pod.namespace, {})
        if "namespaces" in given:
            return selects(given["namespaces"], space)
        both = given["pods"]
        return selects(both["namespaceSelector"], space) and selects(both["podSelector"], pod.labels)

    def admin_peer(self, given, other, address):
        if "networks" in given:
            return any(address in ip_network(network) for network in given["networks"])
        if "nodes" in given:
            return any(address in NODE_IPS[name] for name, own in self.nodes.items() if selects(given["nodes"], own))
        return other is not None and self.admin_pods(given, other)

    def admin_port(self, ports, receiver, protocol, number):
        if not ports:
            return True
        for port in ports:
            if "namedPort" in port:
                fits = receiver is not None and receiver.ports.get((protocol, port["namedPort"])) == number
            elif "portNumber" in port:
                fits = (port["portNumber"]["protocol"], port["portNumber"]["port"]) == (protocol, number)
            else:
                span = port["portRange"]
                fits = span["protocol"] == protocol and span["start"] <= number <= span["end"]
            if fits:
                return True
        return False

    def types(self, spec):
        return spec["policyTypes"] or (["Ingress", "Egress"] if spec["egress"] else ["Ingress"])

    def peer(self, policy, peers, other, address):
        if not peers:
            return True
        for item in peers:
            if "ipBlock" in item:
                block = item["ipBlock"]
                if address in ip_network(block["cidr"]) and not any(
                    address in ip_network(without) for without in block.get("except", [])
                ):
                    return True
            elif other is not None:
                space = {"kubernetes.io/metadata.name": other.namespace} | self.spaces.get(other.namespace, {})
                if "namespaceSelector" in item:
                    there = selects(item["namespaceSelector"], space)
                else:
                    there = other.namespace == policy["metadata"]["namespace"]
                if there and selects(item.get("podSelector", {}), other.labels):
                    return True
        return False

    def port(self, ports, receiver, protocol, number):
        if not ports:
            return True
        for item in ports:
            if item.get("protocol", "TCP") != protocol:
                continue
            wanted = item.get("port")
            if isinstance(wanted, str):
                wanted = None if receiver is None else receiver.ports.get((protocol, wanted), -1)
                if wanted is None:
                    continue
            if wanted is None or wanted <= number <= item.get("endPort", wanted):
                return True
        return False


# The rules of the kernel, on the sets.


def numbers(element):
    return [int.from_bytes(element[at : at + 4], "little") for at in range(0, len(element), 4)]


class Looked:
    """The verdict of the rules."""

    def __init__(self, sets):
        self.sets = sets

    def may(self, source, destination, protocol, number):
        version = source.version
        if source.packed + destination.packed in self.sets[f"self{version}"]:
            return True
        return self.passes("egress", source, destination, protocol, number) and self.passes(
            "ingress", destination, source, protocol, number
        )

    def passes(self, direction, own, other, protocol, number):
        class_ = self.sets[f"{direction}{own.version}"].get(own.packed)
        if class_ is None:
            return True
        known = self.sets[f"identity{own.version}"].get(other.packed)
        parties = [0] if known is None else [0, 1, *numbers(known.data)]
        exact, everything = ports(PROTOCOLS[protocol], number), ports(0, 0)
        heads = [bytes(4) + class_.data + party.to_bytes(4, "little") for party in parties]
        if any(head + item in self.sets["allowed"] for head in heads for item in (exact, everything)):
            return True
        for segment in self.sets["segments"].values():
            if within(exact, segment, (1, 3, 2, 2)) and any(
                head + segment.data in self.sets["ranged"] for head in heads
            ):
                return True
        head = bytes(4) + class_.data
        for entry in (exact, everything):
            place = head + other.packed + entry if own.version == 4 else head + entry + other.packed
            fields = (4, 4, 4, 1, 3, 2, 2) if own.version == 4 else (4, 4, 1, 3, 2, 2, 16)
            found = [box for box in self.sets[f"blocks{own.version}"].values() if within(place, box, fields)]
            assert len(found) <= 1, "ranges must not overlap"
            if found:
                return True
        return False


def ports(protocol, number):
    return bytes((protocol, 0, 0, 0)) + number.to_bytes(2, "big") + bytes(2)


def within(key, box, fields):
    at = 0
    for length in fields:
        part = slice(at, at + length)
        if not box.key[part] <= key[part] <= box.end[part]:
            return False
        at += length
    return True


# Any sequence of changes.

step = st.one_of(
    st.tuples(st.just("pod"), pods()),
    st.tuples(st.just("no pod"), st.integers(0, 5)),
    st.tuples(st.just("space"), st.tuples(st.sampled_from(SPACES), labels)),
    st.tuples(st.just("no space"), st.sampled_from(SPACES)),
    *[st.tuples(st.just("policy"), manifests)] * 3,
    *[st.tuples(st.just("admin policy"), admin_manifests)] * 3,
    st.tuples(st.just("no admin policy"), st.sampled_from(ADMIN_KEYS)),
    st.tuples(st.just("node"), st.tuples(st.sampled_from(NODES), labels)),
    st.tuples(st.just("no node"), st.sampled_from(NODES)),
    st.tuples(st.just("no policy"), st.tuples(st.sampled_from(SPACES), st.sampled_from(("p", "q", "r")))),
)


class Changing:
    """The same changes are given to the paper, to the model and to the content."""

    def __init__(self):
        self.paper, self.model = Documented(), Model()
        self.content = Content(self.model)
        for number in range(5):
            own = {"x": VALUES[number % 2], "y": VALUES[number // 2 % 2]}
            named = {("TCP", "http"): PORTS[number % 3], ("UDP", "dns"): 53}
            uid, space = f"pod-{number}", SPACES[number % 2]
            ips = IPS[4][number], IPS[6][number]
            self._pod(Pod(uid=uid, namespace=space, name=uid, labels=own, ips=ips, ports=named))

    def take(self, kind, given):
        getattr(self, "_" + kind.replace(" ", "_"))(given)

    def _pod(self, pod):
        self.paper.pods.pop(pod.uid, None)
        self.paper.pods[pod.uid] = pod
        self.model.put_pod(pod)
        self.content.put(LocalPod(uid=pod.uid, ips=pod.ips, attachment=Attachment.BRIDGED, link="br0"))

    def _no_pod(self, number):
        self.paper.pods.pop(f"pod-{number}", None)
        self.model.remove_pod(f"pod-{number}")
        self.content.remove(f"pod-{number}")

    def _space(self, given):
        self.paper.spaces[given[0]] = given[1]
        self.model.put_namespace(*given)

    def _no_space(self, name):
        self.paper.spaces.pop(name, None)
        self.model.remove_namespace(name)

    def _policy(self, manifest):
        self.paper.policies[manifest["metadata"]["namespace"], manifest["metadata"]["name"]] = manifest
        self.model.put_policy(policy_of(manifest))

    def _no_policy(self, key):
        self.paper.policies.pop(key, None)
        self.model.remove_policy(*key)

    def _admin_policy(self, manifest):
        self.paper.admin[manifest["kind"], manifest["metadata"]["name"]] = manifest
        self.model.put_admin_policy(admin_policy_of(manifest))

    def _no_admin_policy(self, key):
        self.paper.admin.pop(key, None)
        self.model.remove_admin_policy(*key)

    def _node(self, given):
        name, own = given
        self.paper.nodes[name] = own
        self.model.put_node(name, NODE_IPS[name], own)

    def _no_node(self, name):
        self.paper.nodes.pop(name, None)
        self.model.remove_node(name)

    def anew(self):
        """The verdict that follows from these objects alone, without any history."""
        content = Content(self.model)
        for local in self.content.locals.values():
            content.put(local)
        return content.desired()


def packets():
    """Source, destination, protocol and port."""
    pairs = [(one, other) for version in (4, 6) for one in ends(version) for other in ends(version) if one != other]
    return st.lists(
        st.tuples(st.sampled_from(pairs), st.sampled_from([*PROTOCOLS]), st.sampled_from((53, 79, 80, 85, 443, 8080))),
        min_size=10,
        max_size=40,
    )


def ends(version):
    return [*IPS[version][:6], *(stranger for stranger in STRANGERS if stranger.version == version)]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(step, min_size=10, max_size=30), packets())
def test_documentation_explanation_and_sets_agree(steps, sent):
    changing = Changing()
    for item in steps:
        changing.take(*item)
        changing.content.desired()
    looked = Looked(changing.content.desired().sets)
    for (source, destination), protocol, number in sent:
        expected = changing.paper.may(source, destination, protocol, number)
        explanation = explain(changing.model, source, destination, number, protocol)
        assert explanation.allowed is expected, f"explained: {explanation}"
        assert looked.may(source, destination, protocol, number) is expected, f"the sets: {explanation}"


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(step, min_size=10, max_size=30))
def test_incremental_content_equals_recomputed_content(steps):
    changing = Changing()
    for item in steps:
        changing.take(*item)
        kept = changing.content.desired()
        assert kept.sets == changing.anew().sets
        assert all(key == key_of(element) for elements in kept.sets.values() for key, element in elements.items())


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    namespaces = KernelNamespaces(tmp_path_factory.mktemp("kernel"))
    made = Kernel(namespaces.create("node").path)
    yield made
    made.close()
    namespaces.remove("node")


@settings(max_examples=40, deadline=None, suppress_health_check=[*HealthCheck])
@given(st.lists(st.tuples(step, st.booleans()), min_size=4, max_size=16))
def test_the_kernel_matches_the_model_after_any_changes(kernel, steps):
    """One kernel for all examples: each begins with what the one before has left."""
    changing = Changing()
    for each, at_once in steps:
        changing.take(*each)
        if at_once:
            kernel.apply(changing.content.desired())
    wanted = changing.content.desired()
    kernel.apply(wanted)
    assert kernel.content() == wanted.sets


def test_pods_that_differ_in_nothing_that_matters_are_one():
    model = Model()
    one = Pod(uid="1", namespace="a", name="one", labels={"x": "1"}, ips=(IPS[4][0],), ports={("TCP", "http"): 80})
    model.put_pod(one)
    model.put_pod(replace(one, uid="2", name="two", ips=(IPS[4][1],), ports={("TCP", "http"): 81}))
    assert model.identities.of("1") is model.identities.of("2")
    rule = {"ports": [{"port": "http"}]}
    spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [rule]}
    model.put_policy(policy_of({"metadata": {"namespace": "b", "name": "p"}, "spec": spec}))
    assert model.identities.of("1") is not model.identities.of("2")
    model.remove_policy("b", "p")
    assert model.identities.of("1") is model.identities.of("2")
