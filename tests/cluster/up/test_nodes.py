from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from podwire.apiserver.identity import default_policy
from podwire.apiserver.identity.users import User, node_name
from podwire.cluster.up.components import apiserver_options, components, dns_options
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.nodes import MOST, Node, objection, planned, runtime_on_host
from podwire.cluster.up.preparation import Prepared
from podwire.cluster.up.slots import Slot
from podwire.cluster.up.state import NodeRecord, State

PREFIX = Layout(Path("/tmp/pw"))
HOST = NodeRecord(name="vm", number=1, own=False)


def own(count):
    return tuple(NodeRecord(name=f"node-{number}", number=number, own=True) for number in range(1, count + 1))


def prepared(*nodes, layout=PREFIX):
    return Prepared(layout=layout, state=State(slot=3, nodes=nodes), ipv6=True, host_ips=("192.0.2.7",))


def node(number=2, layout=PREFIX):
    return Node(layout=layout, slot=Slot(3), record=own(number)[-1], ipv6=True)


@pytest.mark.parametrize(
    ("known", "wanted", "says"),
    [
        pytest.param((), None, "", id="nothing said"),
        pytest.param((), 1, "", id="one"),
        pytest.param((), MOST, "", id="the most"),
        pytest.param((), MOST + 1, "between 1 and 16", id="too many"),
        pytest.param((), 0, "between 1 and 16", id="none"),
        pytest.param(own(2), None, "", id="as many as there are"),
        pytest.param(own(2), 3, "", id="more"),
        pytest.param(own(2), 1, "has 2 nodes, and nodes are never removed", id="fewer"),
        pytest.param((HOST,), 1, "", id="the one on the host"),
        pytest.param((HOST,), 2, "on the host itself", id="more on the host"),
    ],
)
def test_how_many_nodes_there_can_be(known, wanted, says):
    error = objection(known, wanted)
    assert says in error
    assert bool(error) is bool(says)


@pytest.mark.parametrize(
    ("known", "wanted", "names"),
    [
        pytest.param((), None, ["node-1"], id="one by itself"),
        pytest.param((), 3, ["node-1", "node-2", "node-3"], id="three"),
        pytest.param(own(2), None, ["node-1", "node-2"], id="those that there are"),
        pytest.param(own(2), 3, ["node-1", "node-2", "node-3"], id="one more"),
        pytest.param((HOST,), None, ["vm"], id="on the host"),
    ],
)
def test_nodes_stay_and_more_come(known, wanted, names):
    found = planned(known, wanted, own(1)[0])
    assert [item.name for item in found] == names
    assert [item.number for item in found] == list(range(1, len(names) + 1))
    assert found[: len(known)] == known


def test_the_first_node_is_like_the_only_node():
    first = node(1)
    assert first.home == PREFIX
    assert first.called("runtime") == "runtime"
    assert first.trace_socket == Path("/run/podwire/trace/trace.sock")
    assert first.runtime.cgroup_parent == runtime_on_host(PREFIX).cgroup_parent
    assert first.runtime.name == ""


def test_another_node_has_a_home_cgroups_and_names_of_its_own():
    second = node(2)
    assert second.home.state == Path("/tmp/pw/var/lib/podwire/nodes/node-2/var/lib/podwire")
    assert second.called("runtime") == "runtime@node-2"
    assert second.trace_socket == Path("/run/podwire/trace/trace.sock")
    assert second.runtime.name == "node-2"
    assert second.runtime.cgroup_parent == f"{runtime_on_host(PREFIX).cgroup_parent}-node-2"
    assert second.runtime.cgroup_parent == runtime_on_host(PREFIX, "node-2").cgroup_parent
    assert second.ips == ("10.103.192.3", "fd70:6f64:7703::3")


def test_a_node_on_the_host_has_the_hosts_paths_and_addresses():
    (found,) = prepared(HOST, layout=Layout(Path("/"))).nodes
    assert (found.home, found.inside, found.space) == (Layout(Path("/")),) * 2 + (None,)
    assert found.ips == ("192.0.2.7",)
    assert found.runtime.cgroup_parent == "podwire"


def test_the_dns_answers_only_the_cluster_and_its_host_also_on_the_host_itself():
    for nodes, listening in (
        (own(1), "10.103.192.1"),
        ((HOST,), "192.0.2.7"),
    ):
        options = dns_options(prepared(*nodes))
        assert options.addresses == (listening,)
        allowed = [any(ip_address(ip) in network for network in options.clients if network.version == 4)
                   for ip in ("10.103.0.9", "192.0.2.7", "192.0.2.8", "203.0.113.1")]  # fmt: skip
        assert allowed == [True, True, False, False]


def test_a_host_that_is_called_like_a_node_is_not_one():
    host = NodeRecord(name="node-2", number=1, own=False)
    (found,) = prepared(host, layout=Layout(Path("/"))).nodes
    assert found.home == Layout(Path("/"))
    assert found.trace_socket == Path("/run/podwire/trace/trace.sock")


def test_every_node_has_its_processes_and_one_cluster_has_the_rest():
    assert [component.name for component in components(prepared(*own(1)))] == [
        "trace", "apiserver", "cni", "runtime", "image", "scheduler", "dns", "dns-2", "kubelet", "node",
    ]  # fmt: skip
    found = {component.name: component for component in components(prepared(*own(2)))}
    assert list(found) == [
        "trace", "apiserver", "cni", "runtime", "cni@node-2", "runtime@node-2", "image", "scheduler", "dns", "dns-2",
        "kubelet", "kubelet@node-2", "node",
    ]  # fmt: skip
    assert found["kubelet@node-2"].needs == ("apiserver", "runtime@node-2")
    assert found["kubelet@node-2"].environment["PODWIRE_NODE"] == "node-2"
    assert found["node"].needs == ("apiserver", "kubelet", "kubelet@node-2")
    assert {item.node.name for item in found.values() if "@" in item.name} == {"node-2"}


def test_every_node_has_an_identity_and_a_certificate_in_its_own_directories():
    options = apiserver_options(prepared(*own(2)))
    files = {identity.kubeconfig: identity for identity in options.identities}
    assert len(files) == len(options.identities) == 14
    kubelet = files[PREFIX.home("node-2").identity("kubelet")]
    assert (kubelet.user, kubelet.groups, kubelet.host) == ("system:node:node-2", ("system:nodes",), "10.103.192.1")
    second = next(serving for serving in options.servings if serving.name == "node-2")
    assert (second.name, second.ips) == ("node-2", ("127.0.0.1", "10.103.192.3", "fd70:6f64:7703::3"))
    assert second.key.is_relative_to("/tmp/pw/var/lib/podwire/nodes/node-2")


def test_every_component_has_a_user_and_a_role_of_its_own():
    options = apiserver_options(prepared(*own(2)))
    subjects = {
        (subject["kind"], subject["name"])
        for _, _, obj in default_policy.defaults()
        for subject in obj.get("subjects", ())
    }
    users = [identity.user for identity in options.identities]
    shared = ["system:kube-proxy"]  # as upstream: the proxies of all nodes are one user
    assert len(set(users)) == len([user for user in users if user not in shared]) + 1
    for identity in options.identities:
        assert "system:masters" not in identity.groups
        named = {("User", identity.user), *(("Group", group) for group in identity.groups)}
        assert named & subjects or node_name(User(identity.user, groups=identity.groups)), identity.user


def test_the_api_server_warns_about_policies_only_where_they_are_not_enforced():
    enforced = prepared(*own(1))
    ignored = replace(enforced, network_policy=False)
    policies = ("networking.k8s.io", "networkpolicies")
    assert policies in apiserver_options(enforced).also_reconciled
    assert policies not in apiserver_options(ignored).also_reconciled
