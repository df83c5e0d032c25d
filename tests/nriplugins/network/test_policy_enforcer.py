"""Policies on their way into a real kernel: what is in the sets after hooks, changes, restarts and failures."""

import uuid
from ipaddress import ip_address, ip_interface

import pytest

from podwire.linux.net.network import KernelNetwork
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.linux.values import Bridge, Veth
from podwire.nriplugins.network.kinds import NAMESPACES, PODS, POLICIES, SLICES
from podwire.nriplugins.network.policy import explain
from podwire.nriplugins.network.policy.kernel import Kernel
from podwire.nriplugins.network.policy_enforcer import NOT_ENFORCED, PolicyEnforcer
from podwire.nriplugins.network.sandbox import Sandbox
from podwire.protocols.k8sapi.watch import Added, Deleted, Updated

NOWHERE = "/nonexistent/netns"


@pytest.fixture
def namespaces(tmp_path):
    made = KernelNamespaces(tmp_path)
    yield made
    for item in made.list():
        made.remove(item.name)


@pytest.fixture
def node(namespaces):
    path = namespaces.create(f"node-{uuid.uuid4().hex[:6]}").path
    with KernelNetwork(path) as network:
        network.links.add(Bridge("br0", up=True))
    return path


@pytest.fixture
def attached(namespaces, node):
    """Makes the namespace of a pod on the node's bridge."""

    def attach(sandbox):
        path = namespaces.create(sandbox.name).path
        with KernelNetwork(node) as outside:
            master = outside.links.get("br0").ifindex
            outside.links.add(Veth(f"h{sandbox.name}", "eth0", path, peer_index=2, master=master, up=True))
        with KernelNetwork(path) as inside:
            inside.addresses.add(2, ip_interface(f"{sandbox.ips[0]}/24"))
        sandbox.netns = path
        return sandbox

    return attach


@pytest.fixture
def enforcer(node):
    """Starts one, again and again: what was in the kernel stays there."""
    started = []

    def start():
        started.append(PolicyEnforcer(node))
        return started[-1]

    yield start
    for item in started:
        item.close()


def sandbox(name, number, app="web"):
    return Sandbox(
        id=f"s-{name}",
        uid=f"u-{name}",
        namespace="default",
        name=name,
        netns=NOWHERE,
        ips=(f"10.1.0.{number}",),
        labels={"app": app},
        annotations={},
    )


def pod(of, *, ips=True, phase="Running"):
    meta = {"name": of.name, "namespace": of.namespace, "uid": of.uid, "labels": dict(of.labels)}
    result = [{"ip": address} for address in of.ips] if ips else []
    return {"metadata": meta, "spec": {}, "status": {"phase": phase, "podIPs": result}}


def policy(name="shut", **spec):
    spec = {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], **spec}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def known(*sandboxes, policies=None):
    return [
        (NAMESPACES, Added({"metadata": {"name": "default", "labels": {}}})),
        *((PODS, Added(pod(sandbox))) for sandbox in sandboxes),
        *((POLICIES, Added(item)) for item in ([policy()] if policies is None else policies)),
    ]


def held(node, name="ingress4"):
    """The addresses in a map of the kernel."""
    kernel = Kernel(node)
    try:
        return {".".join(map(str, key[:4])) for key in kernel.content()[name]}
    finally:
        kernel.close()


def test_pods_are_isolated_by_policies_and_freed_by_their_end(node, enforcer):
    web, db, other = sandbox("web", 2), sandbox("db", 3), sandbox("other", 4, "other")
    one = enforcer()
    warnings = one.reconcile([web, db, other], known(web, db, other))
    assert held(node) == {"10.1.0.2", "10.1.0.3"}
    assert warnings["u-web"].reason == NOT_ENFORCED, (
        "its namespace could not be looked at, and it is isolated all the same"
    )
    one.release(db)
    assert held(node) == {"10.1.0.2"}
    one.reconcile([web, other], [(PODS, Updated(pod(db), pod(db)))])
    assert held(node, "identity4") == {"10.1.0.2", "10.1.0.4"}, "a status may tell of an address that was freed"
    one.reconcile([web, other], [(POLICIES, Deleted(policy()))])
    assert held(node) == set()


def test_before_the_first_pass_only_freed_addresses_are_removed(node, enforcer):
    web, db = sandbox("web", 2), sandbox("db", 3)
    enforcer().reconcile([web, db], known(web, db))
    again = enforcer()
    again.release(db)
    assert held(node) == {"10.1.0.2"}


def test_the_first_pod_after_a_restart_opens_no_other(node, enforcer, attached):
    web, db = sandbox("web", 2), sandbox("db", 3)
    enforcer().reconcile([web], known(web))
    again = enforcer()
    new = attached(db)
    again.protect(new, [web], known(web, new))
    assert held(node) == {"10.1.0.2", "10.1.0.3"}
    assert new.policies == ("shut",)
    assert again.bridges is not None, "its link is a bridge's port, and that is watched"


def test_a_pod_unknown_to_the_api_is_filtered_by_the_runtimes_data(node, enforcer, attached):
    new = attached(sandbox("web", 2))
    one = enforcer()
    one.protect(new, [], known())
    assert held(node) == {"10.1.0.2"}
    one.release(new)
    assert one.model.pods == {}, "nobody else would ever forget it"


def test_the_end_of_an_old_sandbox_does_not_free_the_new_one(node, enforcer):
    old, new = sandbox("web", 2), sandbox("web", 5)
    new.id = "s-web-2"
    one = enforcer()
    one.reconcile([old], known(old))
    one.reconcile([new], [])
    one.release(old)
    assert held(node) == held(node, "identity4") == {"10.1.0.5"}


def test_an_unsupported_policy_isolates_the_pods_that_it_selects(node, enforcer):
    web = sandbox("web", 2)
    bad = policy(ingress=[{"from": [{"ipBlock": {"cidr": "nonsense"}}]}])
    one = enforcer()
    one.reconcile([web], known(web, policies=[bad]))
    assert one.broken.keys() == {("default", "shut")}
    assert held(node) == held(node, "egress4") == {"10.1.0.2"}
    one.reconcile([web], [(POLICIES, Updated(policy(ingress=[{}]), bad))])
    assert one.broken == {}
    assert held(node, "egress4") == set()


def test_a_dns_server_that_is_not_a_pod_is_meant_by_the_labels_of_dns_pods(node, enforcer):
    web, server = sandbox("web", 2), ip_address("10.9.0.1")
    peer = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    rule = {"to": [peer], "ports": [{"port": "dns", "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    only_dns = policy(policyTypes=["Egress"], egress=[rule])
    shut = policy("shut", podSelector={})
    shut["metadata"]["namespace"] = "kube-system"
    meta = {"name": "podwire-dns", "namespace": "kube-system", "uid": "1"}
    slice_ = {
        "metadata": meta,
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": ["10.9.0.1"]},
            {"addresses": ["10.1.0.9"], "targetRef": {"kind": "Pod", "name": "coredns"}},
        ],
        "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}],
    }
    one = enforcer()
    one.reconcile([web], [*known(web, policies=[only_dns, shut]), (SLICES, Added(slice_))])
    assert held(node, "identity4") == {"10.1.0.2", "10.9.0.1"}, "a pod has the labels of its own"
    client = one.model.find("default", "web")
    assert explain(one.model, client, server, 53, "UDP").allowed
    assert explain(one.model, client, server, 53, "TCP").allowed, "policies do not select what is not a pod"
    assert not explain(one.model, client, server, 6443, "TCP").allowed
    assert not explain(one.model, client, ip_address("10.9.0.2"), 53, "UDP").allowed
    one.reconcile([web], [(SLICES, Deleted(slice_))])
    assert held(node, "identity4") == {"10.1.0.2"}
    assert not explain(one.model, client, server, 53, "UDP").allowed
