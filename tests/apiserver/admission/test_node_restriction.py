"""NodeRestriction refuses writes of kubelets and drivers to objects of other nodes, on a server."""

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from podwire.protocols.k8sapi.server_side import Certificate
from tests.apiserver.support import PODS, answer_when

N1 = Certificate("system:node:n1", ("system:nodes",))
N2 = Certificate("system:node:n2", ("system:nodes",))
DRIVER = Certificate("system:podwire:network-driver:n1", ("system:podwire:network-driver",))
NODES = "/api/v1/nodes"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SECRET = "/api/v1/namespaces/default/secrets/s"
TOKEN = "/api/v1/namespaces/default/serviceaccounts/default/token"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
AUDIENCE = [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]


def pod_on(node, name="p", **spec):
    containers = [{"name": "c", "image": "i"}]
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": containers, **spec}}


@pytest.fixture
async def nodes(api):
    """Two nodes that registered themselves."""
    for name, user in (("n1", N1), ("n2", N2)):
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "example.com/rack": "1"}
        reply = await api.post(NODES, {"metadata": {"name": name, "labels": labels}}, user=user)
        assert reply.status == 201, reply.raw
    return api


async def test_a_node_registers_under_its_own_name_only(api):
    reply = await api.post(NODES, {"metadata": {"name": "n2"}}, user=N1)

    assert (reply.status, reply.message) == (
        403,
        'nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"',
    )


async def test_a_node_writes_no_other_node(nodes):
    patch = {"metadata": {"annotations": {"x": "y"}}}
    assert (await nodes.patch(f"{NODES}/n1", patch, user=N1)).status == 200
    assert (await nodes.patch(f"{NODES}/n2", patch, user=N1)).status == 403
    assert (await nodes.patch(f"{NODES}/n2/status", {"status": {"phase": "x"}}, user=N1)).status == 403


@pytest.mark.parametrize(
    ("label", "code"),
    [
        ("node-restriction.kubernetes.io/secure", 403),
        ("fips.node-restriction.kubernetes.io/secure", 403),
        ("node-role.kubernetes.io/control-plane", 403),
        ("example.k8s.io/x", 403),
        ("topology.kubernetes.io/zone", 200),
        ("kubelet.kubernetes.io/x", 200),
        ("sub.node.kubernetes.io/x", 200),
        ("example.com/x", 200),
        ("plain", 200),
    ],
)
async def test_a_node_sets_only_labels_that_steer_no_workload(nodes, label, code):
    reply = await nodes.patch(f"{NODES}/n1", {"metadata": {"labels": {label: "1"}}}, user=N1)

    assert reply.status == code, reply.raw
    if code == 403:
        assert reply.message == f'nodes "n1" is forbidden: is not allowed to modify labels: {label}'


async def test_a_node_does_not_register_with_a_restricted_label(api):
    node = {"metadata": {"name": "n1", "labels": {"node-restriction.kubernetes.io/a": "1"}}}

    reply = await api.post(NODES, node, user=N1)

    assert reply.status == 403
    assert "is not allowed to set the following labels: node-restriction.kubernetes.io/a" in reply.message


async def test_a_node_removes_neither_taints_nor_restricted_labels(nodes):
    taints = [{"key": "k", "effect": "NoSchedule"}]
    labels = {"node-restriction.kubernetes.io/a": "1"}
    await nodes.patch(f"{NODES}/n1", {"metadata": {"labels": labels}, "spec": {"taints": taints}})

    untaint = await nodes.patch(f"{NODES}/n1", {"spec": {"taints": []}}, user=N1)
    unlabel = await nodes.patch(f"{NODES}/n1", {"metadata": {"labels": dict.fromkeys(labels)}}, user=N1)

    assert (untaint.status, unlabel.status) == (403, 403)
    assert untaint.message.endswith('node "n1" is not allowed to modify taints')


async def test_a_node_reports_only_pods_that_run_on_it(nodes):
    await nodes.made(PODS, pod_on("n2"))
    patch = {"status": {"phase": "Running"}}

    other = await nodes.patch(f"{PODS}/p/status", patch, user=N1)
    own = await nodes.patch(f"{PODS}/p/status", patch, user=N2)
    labels = await nodes.patch(f"{PODS}/p/status", {"metadata": {"labels": {"a": "b"}}}, user=N2)
    whole = await nodes.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, user=N2)

    assert (other.status, own.status, labels.status, whole.status) == (403, 200, 403, 403)
    assert 'node "n1" can only update pod status for pods with spec.nodeName set to itself' in other.message
    assert labels.message.endswith('node "n2" cannot update labels through pod status')


async def test_a_node_deletes_and_evicts_only_pods_that_run_on_it(nodes):
    await nodes.made(PODS, pod_on("n2"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}

    assert (await nodes.delete(f"{PODS}/p", user=N1)).status == 403
    assert (await nodes.post(f"{PODS}/p/eviction", eviction, user=N1)).status == 403
    assert (await nodes.delete(f"{PODS}/p", {"gracePeriodSeconds": 0}, user=N2)).status == 200


def mirror(uid, *, node="n1", owner="n1", **spec):
    pod = pod_on(node, "static", **spec)
    pod["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    reference = {"apiVersion": "v1", "kind": "Node", "name": owner, "uid": uid, "controller": True}
    pod["metadata"]["ownerReferences"] = [reference]
    return pod


async def test_a_node_creates_mirror_pods_of_itself_that_refer_to_nothing(nodes):
    uid = (await nodes.get(f"{NODES}/n1")).body["metadata"]["uid"]
    secret = {"volumes": [{"name": "s", "secret": {"secretName": "s"}}]}
    refused = {
        "can only create mirror pods": pod_on("n1"),
        "can only create pods with spec.nodeName set to itself": mirror(uid, node="n2"),
        "can only create pods with an owner reference set to itself": mirror(uid, owner="n2"),
        "UID mismatch": mirror("another"),
        "can not create pods that reference secrets": mirror(uid, **secret),
        "may not reference service accounts": mirror(uid, serviceAccountName="default"),
    }
    for why, pod in refused.items():
        reply = await nodes.post(PODS, pod, user=N1)
        assert (reply.status, why in reply.message) == (403, True), reply.message
    assert (await nodes.post(PODS, mirror(uid), user=N1)).status == 201


async def test_a_node_requests_tokens_only_for_pods_bound_to_it(nodes):
    pod = await nodes.made(PODS, pod_on("n1", volumes=AUDIENCE))
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]}

    async def request(user, **spec):
        return await nodes.post(TOKEN, {"spec": spec}, user=user)

    await answer_when(lambda: request(N1, boundObjectRef=bound), lambda reply: reply.status == 201)
    free = await request(N1)
    without_uid = await request(N1, boundObjectRef={**bound, "uid": ""})
    audience = await request(N1, boundObjectRef=bound, audiences=["vault"])
    other = await request(N2, boundObjectRef=bound)

    assert free.message.endswith("node requested token not bound to a pod")
    assert without_uid.message.endswith("node requested token with a pod binding without a uid")
    assert 'audience "vault" not found in pod spec volume' in audience.message
    assert other.message.endswith("no relationship found between node 'n2' and this object")


async def test_a_node_shares_an_account_with_another_and_still_gets_no_token_for_its_pod(nodes):
    theirs = await nodes.made(PODS, pod_on("n1", "theirs", volumes=AUDIENCE))
    await nodes.made(PODS, pod_on("n2", "mine", volumes=AUDIENCE))
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "theirs", "uid": theirs["metadata"]["uid"]}

    reply = await answer_when(
        lambda: nodes.post(TOKEN, {"spec": {"boundObjectRef": bound}}, user=N2),
        lambda reply: "relationship" not in reply.message,
    )

    assert reply.message.endswith("node requested token bound to a pod scheduled on a different node")


async def test_a_node_reads_the_secret_of_its_pod_while_the_pod_exists(nodes):
    await nodes.made(SECRET.removesuffix("/s"), {"metadata": {"name": "s"}})
    await nodes.made(PODS, pod_on("n1", volumes=[{"name": "v", "secret": {"secretName": "s"}}]))

    await answer_when(lambda: nodes.get(SECRET, user=N1), lambda reply: reply.status == 200)
    watch = f"{SECRET.removesuffix('/s')}?fieldSelector=metadata.name%3Ds"
    assert (await nodes.get(watch, user=N1)).status == 200
    assert (await nodes.get(SECRET, user=N2)).status == 403
    assert (await nodes.get(SECRET.removesuffix("/s"), user=N1)).status == 403
    await nodes.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    await answer_when(lambda: nodes.get(SECRET, user=N1), lambda reply: reply.status == 403)


async def test_a_node_writes_its_own_lease_only(nodes):
    assert (await nodes.post(LEASES, {"metadata": {"name": "n1"}}, user=N1)).status == 201
    reply = await nodes.post(LEASES, {"metadata": {"name": "n3"}}, user=N1)
    assert (reply.status, "with the same name as the requesting node" in reply.message) == (403, True)
    elsewhere = LEASES.replace("kube-node-lease", "default")
    assert (await nodes.post(elsewhere, {"metadata": {"name": "n1"}}, user=N1)).status == 403


def slice_of(node, name="slice"):
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": name}, "spec": {"driver": "net.podwire.dev", "nodeName": node, "pool": pool}}


@pytest.mark.parametrize("user", [N1, DRIVER], ids=["kubelet", "driver"])
async def test_kubelets_and_drivers_publish_slices_of_their_own_node_only(nodes, user):
    await nodes.made(SLICES, slice_of("n2", "theirs"))
    assert (await nodes.post(SLICES, slice_of("n1"), user=user)).status == 201
    refused = await nodes.post(SLICES, slice_of("n2", "more"), user=user)
    assert (refused.status, "with the same NodeName" in refused.message) == (403, True)
    assert (await nodes.delete(f"{SLICES}/theirs", user=user)).status == 403
    await answer_when(lambda: nodes.delete(f"{SLICES}/slice", user=user), lambda reply: reply.status == 200)


async def test_a_driver_updates_no_slice_of_another_node(nodes):
    theirs = await nodes.made(SLICES, slice_of("n2", "theirs"))

    reply = await nodes.put(f"{SLICES}/theirs", {**theirs, "metadata": {**theirs["metadata"]}}, user=DRIVER)

    assert reply.status == 403


def signing_request(name):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, name)]
    builder = x509.CertificateSigningRequestBuilder(x509.Name([x509.NameAttribute(*part) for part in subject]))
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    usages = ["digital signature", "client auth"]
    spec = {"signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": usages}
    return {"metadata": {"generateName": "csr-"}, "spec": {**spec, "request": base64.b64encode(pem).decode()}}


async def test_a_node_requests_certificates_for_itself_only(nodes):
    assert (await nodes.post(REQUESTS, signing_request("system:node:n1"), user=N1)).status == 201
    reply = await nodes.post(REQUESTS, signing_request("system:node:n2"), user=N1)
    assert (reply.status, "can only create a node CSR with CN=system:node:n1" in reply.message) == (403, True)


LOCAL_PATH = Certificate("system:podwire:local-path:n1", ("system:podwire:local-path",))
VOLUMES = "/api/v1/persistentvolumes"


def local_volume(name, node):
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "metadata": {"name": name, "finalizers": ["podwire.dev/local-path"]},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": f"/var/lib/podwire/volumes/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


async def test_the_keeper_of_local_directories_removes_the_finalizer_of_its_own_volumes_only(nodes):
    for name, node in (("mine", "n1"), ("theirs", "n2")):
        assert (await nodes.post(VOLUMES, local_volume(name, node))).status == 201
    assert (await nodes.get(VOLUMES, user=LOCAL_PATH)).status == 200
    assert (await nodes.post(VOLUMES, local_volume("more", "n1"), user=LOCAL_PATH)).status == 403
    assert (await nodes.delete(f"{VOLUMES}/mine", user=LOCAL_PATH)).status == 403

    grown = await nodes.patch(f"{VOLUMES}/mine", {"spec": {"capacity": {"storage": "9Gi"}}}, user=LOCAL_PATH)
    why = 'may only remove the finalizer "podwire.dev/local-path"'
    assert (grown.status, grown.message) == (403, f'persistentvolumes "mine" is forbidden: {why}')
    unprotected = {"metadata": {"finalizers": ["podwire.dev/local-path"]}}  # without the one for volumes in use
    assert (await nodes.patch(f"{VOLUMES}/mine", unprotected, user=LOCAL_PATH)).status == 403

    kept = {"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}}
    theirs = await nodes.patch(f"{VOLUMES}/theirs", kept, user=LOCAL_PATH)
    why = 'can only update volumes of node "n1"'
    assert (theirs.status, theirs.message) == (403, f'persistentvolumes "theirs" is forbidden: {why}')
    assert (await nodes.patch(f"{VOLUMES}/mine", kept, user=LOCAL_PATH)).status == 200
