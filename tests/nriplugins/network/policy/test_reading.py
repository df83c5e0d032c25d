"""Objects read into values, ranges joined and cut, and explanations for people."""

import re
import subprocess
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.nriplugins.network.policy import Content, LocalPod, Model, explain, values
from podwire.nriplugins.network.policy.explain import Unknown, end
from podwire.nriplugins.network.policy.policies import Broken, policy_of
from podwire.nriplugins.network.policy.spans import EVERYTHING, Range, Span, cut, joined, layered, partition
from podwire.nriplugins.network.policy.values import Pod, pod_of

README = Path(values.__file__).parent / "README.md"


def policy(spec, name="p"):
    return {"metadata": {"namespace": "shop", "name": name}, "spec": spec}


def ingress(**rule):
    return {"podSelector": {}, "ingress": [rule]}


BROKEN = [
    ({"podSelector": {}, "policyTypes": ["Both"]}, 'spec.policyTypes[0]: Unsupported value: "Both"'),
    ({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}, 'spec.podSelector: "Like" is not'),
    (ingress(**{"from": [{}]}), "spec.ingress[0].from[0]: Required value: must specify a peer"),
    (
        ingress(**{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}),
        "spec.ingress[0].from[0]: Forbidden",
    ),
    (
        ingress(**{"from": [{"ipBlock": {"cidr": "10.0.0.0/80"}}]}),
        "spec.ingress[0].from[0].ipBlock.cidr: Invalid value",
    ),
    (
        ingress(**{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}]}),
        "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value",
    ),
    (ingress(ports=[{"protocol": "ICMP"}]), 'spec.ingress[0].ports[0].protocol: Unsupported value: "ICMP"'),
    (ingress(ports=[{"port": 0}]), "spec.ingress[0].ports[0].port: Invalid value: 0"),
    (ingress(ports=[{"port": "http", "endPort": 90}]), "spec.ingress[0].ports[0].endPort: Invalid value: 90"),
    (ingress(ports=[{"port": 80, "endPort": 79}]), "spec.ingress[0].ports[0].endPort: Invalid value: 79"),
    ({"podSelector": {}, "egress": [{"to": [{}]}]}, "spec.egress[0].to[0]: Required value"),
]


@pytest.mark.parametrize(("spec", "why"), BROKEN, ids=[item[1][:40] for item in BROKEN])
def test_a_policy_that_cannot_be_followed_is_refused_with_its_field(spec, why):
    with pytest.raises(Broken) as reported:
        policy_of(policy(spec))
    assert str(reported.value).startswith(why)


def test_a_pod_is_read_as_policies_see_it():
    metrics = {"name": "m", "containerPort": 5, "protocol": "UDP"}
    manifest = {
        "metadata": {"uid": "u", "namespace": "shop", "name": "web", "labels": {"app": "web"}},
        "spec": {
            "nodeName": "n1",
            "containers": [{"ports": [{"name": "http", "containerPort": 80}, {"containerPort": 1}]}],
            "initContainers": [
                {"restartPolicy": "Always", "ports": [{"name": "http", "containerPort": 99}, metrics]},
                {"ports": [{"name": "never", "containerPort": 7}]},
            ],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
    }
    pod = pod_of(manifest)
    assert pod == Pod(
        uid="u",
        namespace="shop",
        name="web",
        labels={"app": "web"},
        ips=(ip_address("10.0.0.1"), ip_address("fd00::1")),
        node="n1",
        ports={("TCP", "http"): 80, ("UDP", "m"): 5},
    )
    manifest["status"]["phase"] = "Succeeded"
    assert pod_of(manifest).ips == (), "somebody else may have them"
    assert pod_of({"metadata": {"uid": "u"}, "spec": {"hostNetwork": True}}).host_network


spans = st.builds(
    lambda protocol, first, more: Span(protocol, first, first + more),
    st.sampled_from((6, 17)),
    st.integers(1, 30),
    st.integers(0, 9),
)
networks = st.builds(
    lambda at, bits: ip_network((0x0A000000 + (at >> bits << bits), 32 - bits)), st.integers(0, 255), st.integers(0, 7)
)


def covered(given):
    return {(item.protocol, port) for item in given for port in range(item.first, item.last + 1)}


@given(st.lists(spans))
def test_joined_and_split_spans_cover_their_inputs(given):
    together, parts = joined([frozenset({item}) for item in given]), partition(given)
    assert covered(together) == covered(parts) == covered(given)
    assert sum(part.last - part.first + 1 for part in parts) == len(covered(parts)), "they do not overlap"
    for entry in given:
        assert all(not covered([part]) & covered([entry]) or covered([part]) <= covered([entry]) for part in parts)


def test_everything_swallows_the_rest():
    assert joined([frozenset({Span(6, 80, 80)}), EVERYTHING]) == EVERYTHING


@given(st.lists(networks))
def test_a_network_without_parts_of_it(excepts):
    whole = ip_network("10.0.0.0/24")
    left = {address for item in cut(whole, excepts) for address in range(item.first, item.last + 1)}
    assert left == {int(item) for item in whole if not any(item in without for without in excepts)}


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10), spans)))
def test_ranges_that_overlap_become_ranges_that_do_not(given):
    parts = [(Range(first, first + more), frozenset({span})) for first, more, span in given]
    found = layered(parts)
    for address in range(55):
        here = [allowed for each, allowed in found.items() if each.first <= address <= each.last]
        assert len(here) <= 1
        expected = joined(allowed for each, allowed in parts if each.first <= address <= each.last)
        assert (here[0] if here else frozenset()) == expected


def test_a_range_that_cuts_another_changes_both():
    model = Model()
    for number, name in enumerate(("one", "two"), 1):
        ips = (ip_address(f"10.0.0.{number}"),)
        model.put_pod(Pod(uid=name, namespace="shop", name=name, labels={"app": name}, ips=ips))
    content = Content(model)
    for name, first in (("one", 100), ("two", 150)):
        content.put(LocalPod(uid=name, ips=model.pods[name].ips))
        rule = {"ports": [{"port": first, "endPort": first + 99}]}
        model.put_policy(policy_of(policy({"podSelector": {"matchLabels": {"app": name}}, "ingress": [rule]}, name)))
        wanted = content.desired().sets
    assert len(wanted["segments"]) == 3
    assert len(wanted["ranged"]) == 4
    anew = Content(model)
    for local in content.locals.values():
        anew.put(local)
    assert anew.desired().sets == wanted
    model.remove_policy("shop", "two")
    assert len(content.desired().sets["segments"]) == len(wanted["ranged"]) == 1


@pytest.fixture
def model():
    known = Model()
    known.put_node("n1", [ip_address("10.0.0.254")])
    for number, name in enumerate(("web", "db"), 1):
        ips = ip_address(f"10.0.0.{number}"), ip_address(f"fd00::{number}")
        known.put_pod(Pod(uid=name, namespace="shop", name=name, labels={"app": name}, ips=ips, node="n1"))
    spec = {
        "podSelector": {"matchLabels": {"app": "db"}},
        "ingress": [{"ports": [{"port": 22}]}, {"from": [{"podSelector": {}}], "ports": [{"port": 5432}]}],
    }
    known.put_policy(policy_of(policy(spec, "db")))
    return known


def test_the_rule_that_decides_is_named(model):
    explanation = explain(model, end(model, "shop/web"), end(model, "shop/db"), 5432)
    assert explanation.allowed
    assert [(judgement.policy, judgement.rule) for judgement in explanation.judgements] == [
        ("", ""),
        ("shop/db", "spec.ingress[1]"),
    ]
    assert str(explanation) == (
        "allowed: 10.0.0.1 -> 10.0.0.2 TCP 5432\n"
        "  egress: yes, no policy isolates shop/web for egress\n"
        "  ingress: yes, shop/db spec.ingress[1] allows it"
    )


def test_a_denial_names_the_isolating_policies(model):
    explanation = explain(model, end(model, "192.0.2.1"), end(model, "shop/db"), 5432)
    assert not explanation.allowed
    assert explanation.judgements[1].policies == ("shop/db",)
    assert "ingress: no, shop/db isolates shop/db for ingress and no rule allows it" in str(explanation)
    model.put_policy(policy_of(policy({"podSelector": {}}, "deny")))
    explanation = explain(model, end(model, "192.0.2.1"), end(model, "shop/db"), 5432)
    assert "2 policies isolate shop/db" in str(explanation)


def test_always_allowed_traffic_is_explained(model):
    assert "from its own node" in str(explain(model, end(model, "10.0.0.254"), end(model, "shop/db"), 80))
    assert "always reach itself" in str(explain(model, end(model, "shop/db"), end(model, "fd00::2"), 80))


def test_an_end_is_a_pod_or_an_address(model):
    model.put_pod(Pod(uid="d", namespace="default", name="plain"))
    assert end(model, "plain") == model.pods["d"]
    with pytest.raises(Unknown, match="unknown pod shop/nobody"):
        end(model, "shop/nobody")
    with pytest.raises(Unknown, match="no addresses of the same family"):
        explain(model, end(model, "plain"), end(model, "shop/db"))


def test_the_example_of_the_readme_works():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    command = ["unshare", "--net", sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.startswith("denied: 192.0.2.1 -> 10.1.0.5 TCP 80\n")


def test_the_readme_names_every_file_and_no_other():
    named = set(re.findall(r"^\| `([a-z_]+\.py)` \|", README.read_text(), re.MULTILINE))
    assert named == {path.name for path in README.parent.glob("*.py")} - {"__init__.py"}


def test_without_ports_only_rules_without_ports_allow(model):
    assert not explain(model, end(model, "shop/web"), end(model, "shop/db"), protocol="ICMP").allowed
    model.put_policy(policy_of(policy({"podSelector": {}, "ingress": [{}]}, "all")))
    assert explain(model, end(model, "shop/web"), end(model, "shop/db"), protocol="ICMP").allowed
