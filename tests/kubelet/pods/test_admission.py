"""Admission of pods by a node, and the reasons of a rejection."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kubelet.pods.admission import Host, Rejection, admit
from podwire.linux.net.listeners import Listener
from podwire.objects import nodes, pods

TAINT = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}


def node(*, labels=None, taints=(), **allocatable):
    has = {"cpu": "2", "memory": "1Gi", "pods": "3", "ephemeral-storage": "10Gi", **allocatable}
    return nodes.read(
        {
            "metadata": {"name": "n1", "labels": labels or {"kubernetes.io/os": "linux"}},
            "spec": {"taints": list(taints)},
            "status": {"allocatable": has, "capacity": has},
        }
    )


def pod(name="web", *, phase="Pending", labels=None, annotations=None, ports=(), sysctls=(), requests=None, **spec):
    container = {"name": "c", "ports": list(ports), "resources": {"requests": requests or {}}}
    return pods.read(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "labels": labels or {},
                "annotations": annotations or {},
            },
            "spec": {
                "containers": [container],
                "securityContext": {"sysctls": [{"name": sysctl, "value": "1"} for sysctl in sysctls]},
                **spec,
            },
            "status": {"phase": phase},
        }
    )


def host_port(port, **more):
    return {"containerPort": 80, "hostPort": port, **more}


def affinity(**term):
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("asked", "others"),
    [
        pytest.param(pod(), [], id="that asks for nothing"),
        pytest.param(pod(requests={"cpu": "2", "memory": "1Gi"}), [], id="that takes all there is"),
        pytest.param(
            pod(requests={"cpu": "2"}),
            [pod("done", phase="Succeeded", requests={"cpu": "2"}), pod("failed", phase="Failed")],
            id="since what is finished holds nothing",
        ),
        pytest.param(pod(requests={"cpu": "2"}), [pod(requests={"cpu": "2"})], id="that is among the others itself"),
        pytest.param(pod(requests={"example.com/nic": "1"}), [], id="with a resource that is not the node's to give"),
        pytest.param(pod(ports=[host_port(80)]), [pod("a", ports=[host_port(81)])], id="with another host port"),
        pytest.param(
            pod(ports=[host_port(80)]), [pod("a", ports=[host_port(80, protocol="UDP")])], id="with another protocol"
        ),
        pytest.param(
            pod(ports=[host_port(80, hostIP="10.0.0.1")]),
            [pod("a", ports=[host_port(80, hostIP="10.0.0.2")])],
            id="with the same host port at another address",
        ),
        pytest.param(
            pod(ports=[{"containerPort": 80}]),
            [pod("a", ports=[{"containerPort": 80}])],
            id="with a network of its own",
        ),
        pytest.param(pod(sysctls=["net.ipv4.tcp_syncookies", "net/ipv4/tcp_rmem"]), [], id="with safe sysctls"),
        pytest.param(pod(os={"name": "linux"}), [], id="of this system"),
        pytest.param(pod(nodeSelector={"kubernetes.io/os": "linux"}), [], id="that selects the node"),
        pytest.param(
            pod(affinity=affinity(matchFields=[expression("metadata.name", "In", "n1")])), [], id="that names the node"
        ),
    ],
)
def test_a_node_takes_a_pod(asked, others):
    assert admit(asked, others, node()) is None


@pytest.mark.parametrize(
    ("asked", "others", "reason", "message"),
    [
        pytest.param(
            pod(requests={"cpu": "4"}),
            [pod("a", requests={"cpu": "100m"})],
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 4000, used: 100, capacity: 2000",
            id="too much processor",
        ),
        pytest.param(
            pod(requests={"cpu": "1", "memory": "1Gi"}),
            [pod("a", requests={"memory": "1Mi"})],
            "OutOfmemory",
            "Node didn't have enough resource: memory, requested: 1073741824, used: 1048576, capacity: 1073741824",
            id="too much memory",
        ),
        pytest.param(
            pod(requests={"ephemeral-storage": "11Gi"}),
            [],
            "OutOfephemeral-storage",
            "Node didn't have enough resource: ephemeral-storage, requested: 11811160064, used: 0, "
            "capacity: 10737418240",
            id="too much disk",
        ),
        pytest.param(
            pod(requests={"hugepages-2Mi": "2Mi"}),
            [],
            "OutOfhugepages-2Mi",
            "Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
            id="huge pages",
        ),
        pytest.param(
            pod(),
            [pod(letter) for letter in "abc"],
            "OutOfpods",
            "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
            id="one pod too many",
        ),
        pytest.param(
            pod(nodeSelector={"disk": "ssd"}),
            [],
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            id="a label that the node has not",
        ),
        pytest.param(
            pod(affinity=affinity(matchExpressions=[expression("kubernetes.io/os", "NotIn", "linux")])),
            [],
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            id="a term that the node does not meet",
        ),
        pytest.param(
            pod(affinity=affinity()),
            [],
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            id="a term that no node meets",
        ),
        pytest.param(
            pod(ports=[host_port(80, hostIP="10.0.0.1")]),
            [pod("a", ports=[host_port(80)])],
            "NodePorts",
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
            id="a host port that another has at all addresses",
        ),
        pytest.param(
            pod(sysctls=["net.core.somaxconn"]),
            [],
            "SysctlForbidden",
            'forbidden sysctl: "net.core.somaxconn" not allowlisted',
            id="a sysctl that may harm others",
        ),
        pytest.param(
            pod(sysctls=["net.ipv4.tcp_syncookies"], hostNetwork=True),
            [],
            "SysctlForbidden",
            'forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host net enabled',
            id="a sysctl of the node's network",
        ),
        pytest.param(
            pod(sysctls=["kernel.shm_rmid_forced"], hostIPC=True),
            [],
            "SysctlForbidden",
            'forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host ipc enabled',
            id="a sysctl of the node's shared memory",
        ),
        pytest.param(
            pod(os={"name": "windows"}),
            [],
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
            id="another system",
        ),
        pytest.param(
            pod(labels={"kubernetes.io/os": "windows"}),
            [],
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
            id="the label of another system",
        ),
    ],
)
def test_a_rejection_has_reason_and_message(asked, others, reason, message):
    found = admit(asked, others, node(**{"hugepages-2Mi": "0"}))
    assert found == Rejection(reason, f"Pod was rejected: {message}")
    assert found.event_message == message


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        pytest.param(pod(), False, id="one that says nothing"),
        pytest.param(pod(tolerations=[{"operator": "Exists"}]), True, id="one that tolerates everything"),
        pytest.param(
            pod(tolerations=[{**TAINT, "operator": "Exists", "tolerationSeconds": 300}]), True, id="one that waits"
        ),
        pytest.param(pod(tolerations=[{**TAINT, "operator": "Equal", "value": "x"}]), False, id="another value"),
        pytest.param(
            pod(tolerations=[{**TAINT, "operator": "Exists", "effect": "NoSchedule"}]), False, id="another effect"
        ),
        pytest.param(pod(annotations={"kubernetes.io/config.source": "file"}), True, id="a static one"),
    ],
)
def test_a_node_that_fails_takes_only_pods_that_tolerate_it(asked, taken):
    found = admit(asked, [], node(taints=[TAINT]))
    assert (found is None) is taken
    assert taken or found.reason == "TaintToleration"


def test_a_taint_for_schedulers_is_not_the_nodes_business():
    assert admit(pod(), [], node(taints=[{"key": "x", "effect": "NoSchedule"}])) is None


@pytest.mark.parametrize("pattern", ["net.core.somaxconn", "net.core.*", "net.*"])
def test_unsafe_sysctls_can_be_allowed(pattern):
    assert admit(pod(sysctls=["net.core.somaxconn"]), [], node(), allowed_unsafe_sysctls=[pattern]) is None


def test_without_a_node_object_every_pod_is_admitted():
    assert admit(pod(), [], None).reason == "InvalidNodeInfo"


@given(st.lists(st.integers(0, 3000), max_size=12))
def test_admitted_pods_never_exceed_the_allocatable_resources(asked):
    taken = []
    for number, milli in enumerate(asked):
        each = pod(str(number), requests={"cpu": f"{milli}m"})
        if admit(each, taken, node()) is None:
            taken.append(each)
        elif len(taken) < 3:
            assert milli + sum(int(_cpu(other)[:-1]) for other in taken) > 2000
    assert len(taken) <= 3
    assert sum(int(_cpu(item)[:-1]) for item in taken) <= 2000


def _cpu(pod_):
    return pod_.spec.containers[0].resources.requests["cpu"]


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        ({"example.com/nic": 2}, None),
        ({"example.com/nic": 1}, "OutOfexample.com/nic"),
        ({"example.com/nic": None}, None),
    ],
    ids=["enough", "never enough", "nobody knows"],
)
def test_devices_are_counted_by_plugins_and_not_by_the_node_object(devices, reason):
    other = pod("other", requests={"example.com/nic": "1"})
    found = admit(pod(requests={"example.com/nic": "1"}), [other], node(**{"example.com/nic": "0"}), devices=devices)
    assert (found and found.reason) == reason


NO_PORT = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"


def on(host, asked):
    rejection = admit(asked, [], node(), host=host)
    return None if rejection is None else (rejection.reason, rejection.event_message)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "127.0.0.1", "10.0.0.1"])
def test_a_host_port_on_which_the_node_listens_is_rejected(address):
    host = Host(listeners=[Listener("TCP", 22, ip_address(address))])
    refused = ("NodePorts", f"{NO_PORT}: TCP port 22 is in use by the node itself")
    assert on(host, pod(ports=[host_port(22)])) == refused
    assert on(host, pod(ports=[host_port(23)])) is None
    assert on(host, pod(ports=[host_port(22, protocol="UDP")])) is None
    assert on(host, pod(ports=[host_port(22)], hostNetwork=True)) is None


def test_a_host_port_at_another_address_than_the_listener_is_free():
    host = Host(listeners=[Listener("TCP", 22, ip_address("10.0.0.1"))])
    assert on(host, pod(ports=[host_port(22, hostIP="10.0.0.2")])) is None
    assert on(host, pod(ports=[host_port(22, hostIP="10.0.0.1")])) is not None


@pytest.mark.parametrize("spec", [{}, {"hostNetwork": True}], ids=["redirected", "on the node's network"])
def test_the_port_of_the_kubelet_is_rejected_also_while_it_does_not_listen(spec):
    host = Host(ports=frozenset({("TCP", 10250)}))
    refused = ("NodePorts", f"{NO_PORT}: TCP port 10250 is in use by the node itself")
    assert on(host, pod(ports=[host_port(10250)], **spec)) == refused


APPARMOR = ("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")
ANNOTATION = "container.apparmor.security.beta.kubernetes.io/c"


@pytest.mark.parametrize(
    ("asked", "rejection"),
    [
        (pod(), None),
        (pod(annotations={ANNOTATION: "unconfined"}), None),
        (pod(annotations={ANNOTATION: "localhost/strict"}), APPARMOR),
        (pod(annotations={ANNOTATION: "runtime/default"}), APPARMOR),
        (pod(securityContext={"appArmorProfile": {"type": "RuntimeDefault"}}), APPARMOR),
        (pod(securityContext={"appArmorProfile": {"type": "Unconfined"}}), None),
        (pod(securityContext={"appArmorProfile": {"type": "RuntimeDefault"}}, phase="Running"), None),
        (
            pod(containers=[{"name": "c", "securityContext": {"appArmorProfile": {"type": "Localhost"}}}]),
            APPARMOR,
        ),
        (
            pod(initContainers=[{"name": "i", "securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}]),
            APPARMOR,
        ),
    ],
)
def test_an_apparmor_profile_is_rejected_where_the_kernel_has_no_apparmor(asked, rejection):
    assert on(Host(apparmor=False), asked) == rejection
    assert on(Host(apparmor=True), asked) is None


@pytest.mark.parametrize(
    ("pressures", "asked", "admitted"),
    [
        ((), pod(), True),
        (("DiskPressure",), pod(), False),
        (("DiskPressure",), pod(requests={"cpu": "1"}), False),
        (("DiskPressure",), pod(priority=2_000_000_000), True),
        (("MemoryPressure",), pod(), False),
        (("MemoryPressure",), pod(requests={"cpu": "1"}), True),
        (
            ("MemoryPressure",),
            pod(tolerations=[{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]),
            True,
        ),
        (("DiskPressure", "MemoryPressure"), pod(requests={"cpu": "1"}), False),
    ],
)
def test_a_node_under_pressure_admits_only_pods_that_do_not_worsen_it(pressures, asked, admitted):
    refused = ("Evicted", f"The node had condition: [{' '.join(pressures)}]. ")
    assert on(Host(pressures=pressures), asked) == (None if admitted else refused)
