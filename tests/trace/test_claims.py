"""Claims in a pod's story: whose they are, what was given for them, who offered it."""

from base64 import b64encode

import msgspec
import pytest

from podwire.protocols.dra import dra_v1_pb2, dra_v1beta1_pb2
from podwire.trace.digest import digested
from podwire.trace.labels import label_of
from podwire.trace.participants import in_order, of_socket
from podwire.trace.pods import About, Pods
from podwire.trace.prelude import prelude
from podwire.trace.record import Record, pod_id

UID, CLAIM = "0b33dd0a-4645-4cab-b77c-02562fe6dcad", "7c7e3a3e-0000-4000-8000-000000000001"
OURS = "/var/lib/kubelet/plugins/net.podwire.dev/dra.sock"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
ALLOCATED = {
    "kind": "ResourceClaim",
    "metadata": {"namespace": "default", "name": "nic", "uid": CLAIM},
    "status": {
        "reservedFor": [{"resource": "pods", "name": "web", "uid": UID}],
        "allocation": {"devices": {"results": [{"pool": "n1", "device": "eth1"}]}},
    },
}


@pytest.fixture
def pods() -> Pods:
    known = Pods()
    known.resolve("", About(uid=UID, namespace="default", name="web"))
    return known


def call(method, message, outcome="", socket=OURS, **detail) -> Record:
    document = {"type": type(message).__name__, "data": b64encode(message.SerializeToString()).decode()}
    way = ("Kubelet", "NetworkDriver") if not outcome else ("NetworkDriver", "Kubelet")
    return Record(
        id="Kubelet-1.7", seq=1, time=1.0, caller=way[0], callee=way[1], method=method, outcome=outcome,
        detail={"message": document, "socket": socket, **detail},
    )  # fmt: skip


def request(version=dra_v1_pb2):
    return version.NodePrepareResourcesRequest(claims=[version.Claim(namespace="default", uid=CLAIM, name="nic")])


def response(version=dra_v1_pb2, error=""):
    made = version.NodePrepareResourcesResponse()
    made.claims[CLAIM].error = error
    if not error:
        made.claims[CLAIM].devices.add(pool_name="n1", device_name="eth1", request_names=["nic"])
    return made


@pytest.mark.parametrize("version", [dra_v1_pb2, dra_v1beta1_pb2], ids=["v1", "v1beta1"])
def test_driver_calls_belong_to_the_pod_that_the_kubelet_names(version, pods):
    begun = digested(call("NodePrepareResources", request(version), about="default/web"), pods)
    assert begun.pod == pod_id(UID)
    assert begun.detail["claims"] == ["default/nic"]
    assert begun.detail["request"]["claims"][0]["uid"] == CLAIM
    assert label_of(begun) == "NodePrepareResources default/nic"
    ended = digested(call("NodePrepareResources", response(version), "OK"), pods)
    assert (ended.pod, ended.caller, ended.callee) == (pod_id(UID), "NetworkDriver", "Kubelet")
    assert ended.detail["devices"] == ["n1/eth1"]
    assert label_of(ended) == "OK n1/eth1"


def test_the_error_of_a_claim_is_on_the_reply(pods):
    ended = digested(call("NodePrepareResources", response(error="no such link"), "OK"), pods)
    assert label_of(ended) == "OK: no such link"


def test_unprepare_is_recorded(pods):
    message = dra_v1_pb2.NodeUnprepareResourcesRequest(claims=request().claims)
    begun = digested(call("NodeUnprepareResources", message, about="default/web"), pods)
    assert (begun.pod, label_of(begun)) == (pod_id(UID), "NodeUnprepareResources default/nic")


def test_a_claim_identifies_the_pod_when_none_is_named(pods):
    digested(http("GET", f"{CLAIMS}/nic", ALLOCATED), pods)
    begun = digested(call("NodeUnprepareResources", request()), pods)
    assert begun.pod == pod_id(UID)


@pytest.mark.parametrize(
    ("socket", "who"),
    [
        (OURS, "NetworkDriver"),
        ("/var/lib/kubelet/plugins/net.podwire.dev/chardev.sock", "NetworkDriver"),
        ("/var/lib/kubelet/plugins/dra.net/dra.sock", "NetworkDriver"),
        ("/var/lib/kubelet/plugins/gpu.example.com/dra.sock", "gpu.example.com"),
        ("/var/lib/kubelet/device-plugins/nic.sock", ""),
        ("/plugins/", ""),
    ],
)
def test_a_driver_is_identified_by_the_directory_of_its_socket(socket, who):
    assert of_socket(socket) == who


def test_a_foreign_driver_has_its_own_name(pods):
    socket = "/var/lib/kubelet/plugins/gpu.example.com/dra.sock"
    begun = digested(call("NodePrepareResources", request(), socket=socket, about="default/web"), pods)
    assert begun.callee == "gpu.example.com"
    assert in_order({"gpu.example.com", "Kubelet"}) == ["Kubelet", "gpu.example.com"]


def http(verb, path, answer, code="200", pod=None) -> Record:
    return Record(
        id="APIServer-1.9", seq=1, time=1.0, caller="APIServer", callee="podwire-network-driver/1",
        method=f"{verb} {path}", outcome=code, pod=pod, detail={"response": answer},
    )  # fmt: skip


def test_a_claim_belongs_to_its_pod_and_shows_its_devices(pods):
    result = digested(http("PUT", f"{CLAIMS}/nic/status", ALLOCATED), pods)
    assert (result.pod, result.callee) == (pod_id(UID), "NetworkDriver")
    assert result.detail["devices"] == ["n1/eth1"]
    assert label_of(result) == "200 OK (n1/eth1)"


def test_a_claim_that_was_made_for_a_pod_is_about_it(pods):
    made = {
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": "default", "name": "web-nic-x", "uid": CLAIM,
            "ownerReferences": [{"kind": "Pod", "name": "web", "uid": UID}],
        },
    }  # fmt: skip
    assert digested(http("POST", CLAIMS, made, "201"), pods).pod == pod_id(UID)


def test_a_claim_of_many_pods_is_about_the_one_that_used_it_last(pods):
    other = "11111111-2222-4333-8444-555555555555"
    pods.resolve("", About(uid=other, namespace="default", name="db"))
    shared = msgspec.json.decode(msgspec.json.encode(ALLOCATED))
    digested(http("GET", f"{CLAIMS}/nic", shared), pods)
    shared["status"]["reservedFor"].append({"resource": "pods", "name": "db", "uid": other})
    result = http("GET", f"{CLAIMS}/nic", shared)
    assert digested(msgspec.structs.replace(result, id="APIServer-1.a"), pods).pod == pod_id(UID)


@pytest.mark.parametrize(
    "odd", [[], "x", {"metadata": 1}, {"status": {"reservedFor": 3}}, {"status": {"allocation": []}}]
)
def test_malformed_claims_are_tolerated(odd, pods):
    answer = {"kind": "ResourceClaim", **odd} if isinstance(odd, dict) else odd
    digested(http("GET", f"{CLAIMS}/nic", answer), pods)


def test_many_devices_are_abbreviated(pods):
    slice_ = {"kind": "ResourceSlice", "spec": {"devices": [{"name": f"eth{number}"} for number in range(20)]}}
    result = digested(http("POST", "/apis/resource.k8s.io/v1/resourceslices", slice_, "201"), pods)
    assert result.pod is None
    assert result.detail["devices"][-1] == "12 more"


def slice_write(time: float, caller: str = "NetworkDriver") -> Record:
    return Record(
        id=f"APIServer-1.s{time}", seq=int(time), time=time, caller=caller, callee="APIServer",
        method="PUT /apis/resource.k8s.io/v1/resourceslices/n1-x?fieldManager=x",
    )  # fmt: skip


def test_a_trace_with_claims_begins_with_the_last_slices_of_the_driver():
    old, new, late, other = slice_write(1.0), slice_write(2.0), slice_write(9.0), slice_write(3.0, "gpu")
    own = [
        Record(
            id="Kubelet-1.1", seq=1, time=4.0, caller="Kubelet", callee="NetworkDriver", method="NodePrepareResources"
        )
    ]
    assert prelude(own, [old, late, new, other]) == [new]
    assert prelude(own[:0] or [slice_write(4.0)], [old, new]) == []
