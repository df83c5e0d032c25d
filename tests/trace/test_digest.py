"""Datagrams become records: bodies and messages are decoded, and the pod of each is found."""

import msgspec
import pytest

from podwire.interfaces import EVENT, Hop
from podwire.linux.proc.processes import Finished
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.nri import nri_pb2
from podwire.trace.digest import digested
from podwire.trace.pods import About, Pods
from podwire.trace.record import MOST_DETAIL, decode, encode, pod_id
from podwire.trace.recorder import MOST_BODY, Recorder
from podwire.transports.tapped import Execution, Stored
from podwire.transports.tapped_http import TappedExchange, TappedRequest

UID = "3bba3e28-8f2d-47ce-8c5b-f9d5d263d9fc"
ID = UID.replace("-", "")
POD = {"kind": "Pod", "metadata": {"name": "web", "namespace": "default", "uid": UID}, "status": {"phase": "Pending"}}
PODS = "/api/v1/namespaces/default/pods"


class Line:
    """A recorder, the wire and the digestion behind it."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.pods = Pods()
        self.recorder = Recorder(self.sent.append, "Test", "n1")
        self.calls = 0

    def pass_on(self, method, detail, outcome=""):
        self.sent.clear()
        self.recorder(Hop(caller="kubectl/v1", callee="APIServer", method=method, outcome=outcome, detail=detail))
        return [digested(decode(datagram), self.pods) for datagram in self.sent]

    def whole(self, method, request, response, outcome="OK"):
        """Both records of one call."""
        self.calls += 1
        begun = self.pass_on(method, {"call": self.calls, "request": request})
        return begun + self.pass_on(method, {"call": self.calls, "response": response}, outcome)


@pytest.fixture
def line():
    return Line()


def answered(response, request=b""):
    return TappedExchange(TappedRequest({}, request), "application/json", msgspec.json.encode(response))


def test_a_created_pod_is_known_by_its_answer(line):
    headers = {"kubectl-command": "kubectl apply", "kubectl-session": "s1", "authorization": "Bearer x"}
    begun, ended = line.whole(f"POST {PODS}", TappedRequest(headers), answered(POD, b'{"kind":"Pod"}'), "201")
    assert (begun.caller, begun.callee, begun.pod, begun.node, begun.outcome) == (
        "KubeCtl",
        "APIServer",
        None,
        "n1",
        "",
    )
    assert begun.detail == {"kubectl_command": "kubectl apply", "kubectl_session": "s1"}
    assert (ended.pod, ended.outcome, ended.id) == (ID, "201", begun.id)
    assert ended.detail["request"] == {"kind": "Pod"}
    assert (ended.detail["namespace"], ended.detail["name"], ended.detail["phase"]) == ("default", "web", "Pending")
    assert [begun.seq, ended.seq] == [1, 2]


def test_a_name_means_the_last_pod_of_that_name(line):
    line.whole(f"POST {PODS}", TappedRequest({}), answered(POD), "201")
    begun, ended = line.whole(f"POST {PODS}/web/binding", TappedRequest({}), answered({"kind": "Status"}), "201")
    assert begun.pod == ended.pod == ID


def test_a_watch_is_about_no_pod_and_each_frame_about_its_own(line):
    method = "GET /api/v1/pods?watch=true"
    [begun] = line.pass_on(method, {"call": 1, "request": TappedRequest({})})
    frames = [{"type": "ADDED", "object": POD}, {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {}}}]
    chunk = b"\n".join(map(msgspec.json.encode, frames)) + b"\n"
    result = line.pass_on(method, {"call": 1, "event": chunk}, EVENT)
    [ended] = line.pass_on(
        method, {"call": 1, "response": TappedExchange(TappedRequest({}), "application/json", b"")}, "200"
    )
    assert [item.pod for item in result] == [ID, None]
    assert (result[0].detail["type"], result[0].detail["phase"]) == ("ADDED", "Pending")
    assert begun.pod is ended.pod is None
    assert {item.id for item in result} == {begun.id}


def test_a_frame_of_a_table_is_about_the_object_of_its_row(line):
    frame = {"type": "ADDED", "object": {"kind": "Table", "rows": [{"cells": [], "object": POD}]}}
    [reported] = line.pass_on(f"GET {PODS}?watch=1", {"call": 1, "event": msgspec.json.encode(frame)}, EVENT)
    assert reported.pod == ID


@pytest.mark.parametrize("path", ["/readyz", "/api", "/apis", "/apis/apps/v1", "/openapi/v3", "/version"])
def test_requests_without_a_resource_are_not_recorded(path, line):
    assert line.pass_on(f"GET {path}", {"call": 1, "request": TappedRequest({})}) == []


def test_events_of_other_watches_are_not_recorded(line):
    assert line.pass_on("GET /api/v1/secrets?watch=1", {"call": 1, "event": b'{"type":"ADDED"}\n'}, EVENT) == []


@pytest.mark.parametrize(
    ("method", "request_", "response"),
    [
        ("POST /api/v1/namespaces/default/events", {"involvedObject": {"kind": "Pod", "uid": UID}}, {"kind": "Event"}),
        (
            "POST /api/v1/namespaces/default/serviceaccounts/default/token",
            {"spec": {"boundObjectRef": {"kind": "Pod", "name": "web", "uid": UID}}},
            {"kind": "TokenRequest", "status": {"token": "very secret"}},
        ),
    ],
    ids=["an event", "a token"],
)
def test_objects_about_a_pod_are_part_of_its_trace(method, request_, response, line):
    _, ended = line.whole(method, TappedRequest({}), answered(response, msgspec.json.encode(request_)), "201")
    assert ended.pod == ID
    assert "very secret" not in str(ended)


def test_store_writes_are_assigned_by_the_stored_object(line):
    begun, ended = line.whole("create /registry/pods/default/web", Stored(msgspec.json.encode(POD)), None)
    assert begun.pod == ended.pod == ID
    assert begun.detail["object"] == POD


def test_cri_calls_are_known_by_metadata_then_by_the_ids_of_answers(line):
    run = pb.RunPodSandboxRequest()
    run.config.metadata.uid, run.config.metadata.name = UID, "web"
    create = pb.CreateContainerRequest(pod_sandbox_id="s1")
    start = pb.StartContainerRequest(container_id="c1")
    result = line.whole("RunPodSandbox", run, pb.RunPodSandboxResponse(pod_sandbox_id="s1"))
    result += line.whole("CreateContainer", create, pb.CreateContainerResponse(container_id="c1"))
    result += line.whole("StartContainer", start, pb.StartContainerResponse())
    launched = Execution(["shim", "run", "--id", "c1", "--", "crun", "run", "c1"], {}, b"")
    result += line.whole("crun run", launched, Finished(0, b"", b""))
    assert {item.pod for item in result} == {ID}
    assert result[0].detail["request"]["config"]["metadata"]["uid"] == UID
    assert result[1].detail["response"] == {"pod_sandbox_id": "s1"}


def test_an_nri_hook_shows_the_pod_its_network_and_the_adjustment(line):
    pod = nri_pb2.PodSandbox(id="s1", uid=UID, name="web", namespace="default", ips=["10.0.0.2"])
    pod.linux.namespaces.add(type="network", path="/run/netns/x")
    create = nri_pb2.CreateContainerRequest(pod=pod, container=nri_pb2.Container(id="c1", name="app"))
    answer = nri_pb2.CreateContainerResponse()
    answer.adjust.env.add(key="A", value="b")
    begun, ended = line.whole("NRI CreateContainer", create, answer)
    assert begun.pod == ended.pod == ID
    document = {"name": "web", "netns": "/run/netns/x", "ips": ["10.0.0.2"]}
    assert begun.detail["request"] == {"pod": document, "container": "app"}
    assert ended.detail["response"] == {"adjust": {"env": [{"key": "A", "value": "(redacted)"}]}}


def test_a_cni_call_is_assigned_by_cni_args(line):
    env = {
        "CNI_COMMAND": "ADD",
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_UID={UID}",
        "CNI_NETNS": "/run/netns/x",
        "PATH": "/",
    }
    done = Finished(0, b'{"ips": [{"address": "10.0.0.2/24"}]}', b"a word")
    begun, ended = line.whole("ADD bridge", Execution(["/opt/cni/bin/bridge"], env, b'{"name": "net"}'), done)
    assert begun.pod == ended.pod == ID
    assert begun.detail["stdin"] == {"name": "net"}
    assert "PATH" not in begun.detail["env"]
    assert begun.detail["env"]["CNI_NETNS"] == "/run/netns/x"
    assert ended.detail == {"code": 0, "stdout": {"ips": [{"address": "10.0.0.2/24"}]}, "stderr": "a word"}


def test_a_body_that_is_not_json_is_not_stored(line):
    _, ended = line.whole(f"POST {PODS}", TappedRequest({}), answered(POD, b"k8s\0\n\x0btoken"), "201")
    assert ended.detail["request"] == {"cut": 11}


def test_a_large_body_is_cut_and_keeps_its_pod(line):
    large = POD | {"spec": {"nodeName": "n1", "junk": "x" * MOST_BODY}}
    _, ended = line.whole(f"POST {PODS}", TappedRequest({}), answered(large, b"y" * MOST_BODY * 2), "201")
    assert ended.pod == ID
    assert ended.detail["response"]["cut"] > MOST_BODY
    assert ended.detail["nodeName"] == "n1"
    assert ended.detail["request"] == {"cut": MOST_BODY * 2}


def test_a_detail_that_grows_while_it_is_digested_is_cut(line):
    done = Finished(0, b"\x01" * MOST_BODY, b"e" * MOST_BODY)
    _, ended = line.whole("ADD bridge", Execution(["/bin/bridge"], {}, b""), done)
    assert len(encode(ended.detail)) <= MOST_DETAIL


def test_a_uid_is_a_trace_id():
    assert pod_id(UID) == ID
    assert len(pod_id("not a uuid")) == 32
    assert int(pod_id("not a uuid"), 16)


def test_names_that_are_forgotten_are_not_known_any_more():
    pods = Pods()
    assert pods.resolve("1", About(uid=UID, namespace="default", name="web")) == ID
    assert pods.resolve("2", About(namespace="default", name="web")) == ID
    pods.forget("default", "web")
    assert pods.resolve("3", About(namespace="default", name="web")) is None
    assert pods.resolve("1", About()) == ID


def test_invalid_text_is_lost_and_noticed_by_its_number(line):
    assert line.pass_on("GET /api/v1/pods/\udcff", {"call": 1, "request": TappedRequest({})}) == []
    [found] = line.pass_on("GET /api/v1/pods/web", {"call": 2, "request": TappedRequest({})})
    assert found.seq == 2
