"""Secrets do not leave the process that has them: each position of the table, and what stays readable."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.interfaces import EVENT, Hop
from podwire.linux.proc.processes import Finished
from podwire.protocols.cri import cri_pb2 as cri
from podwire.protocols.deviceplugin import deviceplugin_pb2 as deviceplugin
from podwire.protocols.nri import nri_pb2 as nri
from podwire.trace.recorder import Recorder
from podwire.trace.redact import HIDDEN, LAST_APPLIED, Position, cni_configuration, cni_environment
from podwire.trace.redact_messages import FIELDS, redacted
from podwire.transports.tapped import Execution, Stored
from podwire.transports.tapped_http import TappedExchange, TappedRequest

CANARY = "hunter2-canary"
PODS = "/api/v1/namespaces/x/pods"
SECRETS = "/api/v1/namespaces/x/secrets"
SECRET = {
    "kind": "Secret",
    "apiVersion": "v1",
    "type": "Opaque",
    "metadata": {"name": "s", "namespace": "x", "uid": "u", "annotations": {LAST_APPLIED: CANARY, "other": CANARY}},
    "data": {"password": CANARY},
    "stringData": {"password": CANARY},
}
CONTAINER = {
    "name": "app",
    "image": "busybox",
    "command": ["sh", "-c", "echo $(PASSWORD)"],
    "env": [
        {"name": "PLAIN", "value": CANARY},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}},
    ],
    "livenessProbe": {"httpGet": {"path": "/", "httpHeaders": [{"name": "Authorization", "value": CANARY}]}},
}
POD = {
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "x", "uid": "u", "annotations": {LAST_APPLIED: CANARY, "mine": "shown"}},
    "spec": {"nodeName": "n1", "containers": [CONTAINER], "initContainers": [CONTAINER]},
    "status": {"phase": "Running"},
}
DEPLOYMENT = {"kind": "Deployment", "spec": {"template": {"spec": POD["spec"]}}}


def sent(method, detail, outcome=""):
    """The bytes that a recorder writes to its socket for one hop."""
    datagrams = []
    recorder = Recorder(datagrams.append, "Test")
    recorder(Hop(caller="a", callee="b", method=method, outcome=outcome, detail={"call": 1, **detail}))
    return b"".join(datagrams)


def exchanged(method, request, response):
    asked = TappedRequest({"authorization": f"Bearer {CANARY}", "cookie": CANARY}, json.dumps(request).encode())
    exchange = TappedExchange(asked, "application/json", json.dumps(response).encode())
    return sent(method, {"request": asked}) + sent(method, {"response": exchange}, "200")


def readable(value, path):
    """The rest of a body that is sent to a path."""
    return msgspec.json.decode(msgspec.json.encode(Position(f"POST {path}").json(json.dumps(value).encode())))


@pytest.mark.parametrize(
    ("method", "request_", "response"),
    [
        (f"POST {SECRETS}", SECRET, SECRET),
        (f"GET {SECRETS}/s", {}, SECRET),
        (f"GET {SECRETS}", {}, {"kind": "SecretList", "items": [SECRET]}),
        (f"GET {SECRETS}", {}, {"kind": "Table", "rows": [{"cells": ["s"], "object": SECRET}]}),
        ("GET /api/v1/secrets?limit=500", {}, {"kind": "SecretList", "items": [SECRET]}),
        (f"PATCH {SECRETS}/s", {"data": {"a": CANARY}}, SECRET),
        (f"PATCH {SECRETS}/s", {"metadata": {"annotations": {"a": CANARY}}}, {}),
        (f"PATCH {SECRETS}/s", [{"op": "replace", "path": "/data/a", "value": CANARY}], {}),
        (f"PATCH {SECRETS}/s", [{"op": "add", "path": "/data", "value": {"a": CANARY}}], {}),
        ("POST /apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": CANARY}}, {"spec": {"token": CANARY}}),
        (
            "POST /api/v1/namespaces/x/serviceaccounts/a/token",
            {},
            {"kind": "TokenRequest", "status": {"token": CANARY}},
        ),
        (f"POST {PODS}", POD, POD),
        (f"PUT {PODS}/web", POD, POD),
        (f"PATCH {PODS}/web", {"spec": {"containers": [CONTAINER]}}, {}),
        (f"PATCH {PODS}/web", [{"op": "add", "path": "/spec/containers/0/env/0/value", "value": CANARY}], {}),
        (f"PATCH {PODS}/web", [{"op": "add", "path": "/spec/containers/0/env", "value": CONTAINER["env"]}], {}),
        (f"PATCH {PODS}/web", [{"op": "add", "path": "/spec/containers/0", "value": CONTAINER}], {}),
        (f"PATCH {PODS}/web", [{"op": "add", "path": "/metadata/annotations", "value": {LAST_APPLIED: CANARY}}], {}),
        (
            f"PATCH {PODS}/web",
            [{"op": "add", "path": f"/metadata/annotations/{LAST_APPLIED.replace('/', '~1')}", "value": CANARY}],
            {},
        ),
        ("POST /apis/apps/v1/namespaces/x/deployments", DEPLOYMENT, DEPLOYMENT),
        (f"POST {PODS}/web/exec?command=echo&command={CANARY}", {}, {}),
        (f"POST {PODS}/web/proxy/login?password={CANARY}", {"password": CANARY}, {"session": CANARY}),
        (f"GET /api/v1/nodes/n/proxy/run/x/web/app?cmd={CANARY}", {}, {}),
    ],
)
def test_request_is_sent_without_its_secrets(method, request_, response):
    assert CANARY.encode() not in exchanged(method, request_, response)


def test_text_with_escaped_letters_is_searched_too():
    body = json.dumps(POD).replace('"env"', '"\\u0065nv"').encode()
    asked = TappedRequest({}, body)
    exchange = TappedExchange(asked, "application/json", b"{}")
    datagrams = sent(f"POST {PODS}", {"response": exchange}, "201")
    assert f'"name":"PLAIN","value":"{HIDDEN}"'.encode() in datagrams


def test_names_and_ordinary_values_stay_readable():
    shown = readable(POD, PODS)
    assert shown["metadata"]["annotations"] == {LAST_APPLIED: HIDDEN, "mine": "shown"}
    assert shown["spec"]["containers"][0]["env"] == [{"name": "PLAIN", "value": HIDDEN}, CONTAINER["env"][1]]
    assert shown["spec"]["containers"][0]["command"] == CONTAINER["command"]
    assert (shown["spec"]["nodeName"], shown["status"]) == ("n1", {"phase": "Running"})
    secret = readable(SECRET, SECRETS)
    assert secret["data"] == {"password": HIDDEN}
    assert (secret["metadata"]["name"], secret["type"]) == ("s", "Opaque")


@pytest.mark.parametrize(
    "variable",
    [
        {"name": "value", "value": CANARY},
        {"name": "A", "value": f'"]{CANARY}\\"["'},
        {"name": "A", "value": [CANARY]},
        {"name": "A", "value": 5, "other": [{"value": CANARY}]},
        {"value": CANARY, "name": '"env":[{"value":"'},
    ],
    ids=["a variable called value", "quotes and brackets", "a list", "a list beside it", "a name like a list"],
)
def test_text_is_replaced_only_where_that_is_certain(variable):
    pod = {"spec": {"containers": [{"env": [variable, {"name": "B", "value": CANARY}]}]}, "note": '"env": ["kept"]'}
    shown = readable(pod, PODS)
    assert CANARY not in json.dumps(shown) or "other" in variable
    assert shown["note"] == pod["note"]
    assert [entry["name"] for entry in shown["spec"]["containers"][0]["env"]] == [variable["name"], "B"]
    spaced = json.dumps(pod, indent=2).encode()
    assert msgspec.json.decode(msgspec.json.encode(Position(f"POST {PODS}").json(spaced))) == shown


def test_applied_pod_keeps_the_names_of_managed_fields():
    fields = {"f:metadata": {"f:annotations": {f"f:{LAST_APPLIED}": {}}}}
    metadata = {"annotations": {LAST_APPLIED: json.dumps(POD)}, "managedFields": [{"fieldsV1": fields}]}
    shown = readable({"kind": "Pod", "metadata": metadata}, PODS)
    assert shown["metadata"] == {**metadata, "annotations": {LAST_APPLIED: HIDDEN}}


def test_config_map_and_a_namespace_called_secrets_are_not_secret():
    config_map = {"kind": "ConfigMap", "data": {"a": "shown"}}
    path = "/api/v1/namespaces/secrets/configmaps"
    assert b"shown" in exchanged(f"POST {path}", config_map, config_map)
    failure = {"kind": "Status", "message": 'secrets "s" not found'}
    assert b"not found" in exchanged(f"GET {SECRETS}/s", {}, failure)


@pytest.mark.parametrize(
    "body", [b"[" * 5000 + b"]" * 5000, b'{"env":' * 900 + b"1" + b"}" * 900, b"{", b"\xff", b'"a']
)
@pytest.mark.parametrize("path", [PODS, SECRETS])
def test_strange_bodies_do_not_break_the_recorder(path, body):
    exchange = TappedExchange(TappedRequest({}, body), "application/json", b'{"env": []}')
    sent(f"POST {path}", {"response": exchange}, "400")
    sent("ADD bridge", {"request": Execution(["bridge"], {}, body)})


def test_stored_objects_and_watch_events_are_sent_without_their_secrets():
    stored = sent("create /registry/secrets/x/s", {"request": Stored(json.dumps(SECRET).encode())})
    stored += sent("create /registry/pods/x/web", {"request": Stored(json.dumps(POD).encode())})
    frame = json.dumps({"type": "ADDED", "object": POD}).encode() + b"\n"
    event = sent("GET /api/v1/pods?watch=1", {"event": frame}, EVENT)
    assert CANARY.encode() not in stored + event
    assert b"nodeName" in stored
    assert b"nodeName" in event


@pytest.mark.parametrize("body", [b"k8s\0\n\x0b" + CANARY.encode(), f"env: [{{value: {CANARY}}}]".encode()])
def test_body_that_is_not_json_is_not_sent(body):
    exchange = TappedExchange(TappedRequest({}, body), "application/json", b"{}")
    assert CANARY.encode() not in sent(f"POST {PODS}", {"response": exchange}, "201")


def config_with_secrets():
    config = cri.ContainerConfig(command=["sh", CANARY], args=[CANARY], annotations={LAST_APPLIED: CANARY})
    config.envs.add(key="PASSWORD", value=CANARY.encode())
    return config


def adjustment():
    adjust = nri.ContainerAdjustment(args=[CANARY], annotations={LAST_APPLIED: CANARY})
    adjust.env.add(key="PASSWORD", value=CANARY)
    adjust.hooks.create_runtime.add(path="/bin/hook", env=[f"PASSWORD={CANARY}"], args=[CANARY])
    return adjust


SANDBOX = cri.PodSandboxConfig(annotations={LAST_APPLIED: CANARY})
MESSAGES = [
    cri.CreateContainerRequest(config=config_with_secrets(), sandbox_config=SANDBOX),
    cri.RunPodSandboxRequest(config=SANDBOX),
    cri.PullImageRequest(
        auth=cri.AuthConfig(
            username=CANARY, password=CANARY, auth=CANARY, identity_token=CANARY, registry_token=CANARY
        ),
        sandbox_config=SANDBOX,
    ),
    cri.ExecSyncRequest(cmd=["sh", "-c", CANARY]),
    cri.ExecSyncResponse(stdout=CANARY.encode(), stderr=CANARY.encode()),
    cri.ExecRequest(cmd=[CANARY]),
    cri.ExecResponse(url=f"http://127.0.0.1/exec/{CANARY}"),
    cri.AttachResponse(url=f"http://127.0.0.1/attach/{CANARY}"),
    cri.PortForwardResponse(url=f"http://127.0.0.1/portforward/{CANARY}"),
    cri.StatusResponse(info={"config": CANARY}),
    cri.ContainerStatusResponse(info={"info": CANARY}, status=cri.ContainerStatus(annotations={LAST_APPLIED: CANARY})),
    cri.PodSandboxStatusResponse(info={"info": CANARY}),
    cri.ImageStatusResponse(info={"info": CANARY}),
    nri.ConfigureRequest(config=CANARY),
    nri.CreateContainerRequest(
        pod=nri.PodSandbox(annotations={LAST_APPLIED: CANARY}),
        container=nri.Container(env=[f"PASSWORD={CANARY}"], args=[CANARY]),
    ),
    nri.CreateContainerResponse(adjust=adjustment()),
    nri.ValidateContainerAdjustmentRequest(adjust=adjustment()),
    deviceplugin.AllocateResponse(
        container_responses=[deviceplugin.ContainerAllocateResponse(envs={"PASSWORD": CANARY})]
    ),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.DESCRIPTOR.full_name)
def test_message_is_sent_without_its_secrets_and_not_changed(message):
    before = message.SerializeToString()
    shown = redacted(message)
    assert CANARY.encode() in before
    assert CANARY.encode() not in shown.SerializeToString()
    assert message.SerializeToString() == before


def test_every_position_of_the_table_has_a_message_here():
    seen = set()

    def visit(message):
        for field, value in message.ListFields():
            seen.add((message.DESCRIPTOR.full_name, field.name))
            if field.message_type is not None and not field.message_type.GetOptions().map_entry:
                for part in value if field.is_repeated else [value]:
                    visit(part)

    for message in MESSAGES:
        visit(message)
    assert {(name, field) for name, fields in FIELDS.items() for field in fields} <= seen


def test_names_in_messages_stay_readable():
    create = redacted(MESSAGES[0])
    assert [(variable.key, variable.value) for variable in create.config.envs] == [("PASSWORD", b"")]
    hooked = redacted(nri.CreateContainerResponse(adjust=adjustment())).adjust
    assert hooked.env[0].key == "PASSWORD"
    assert hooked.hooks.create_runtime[0].env == [f"PASSWORD={HIDDEN}"]


def test_message_without_secrets_is_not_copied():
    for message in (
        cri.RunPodSandboxRequest(config=cri.PodSandboxConfig(annotations={"a": "b"})),
        cri.VersionRequest(),
    ):
        assert redacted(message) is message


def test_cni_call_shows_what_the_specification_and_common_plugins_define():
    config = {
        "cniVersion": "1.1.0",
        "name": "net",
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/24"}]], "password": CANARY},
        "runtimeConfig": {"portMappings": [{"hostPort": 80}], "io.example.credentials": {"key": CANARY}},
        "args": {"cni": {"password": CANARY}},
        "policy": {"k8s_auth_token": CANARY},
        "kubernetes": {"kubeconfig": CANARY},
    }
    shown = cni_configuration(msgspec.json.encode(config))
    assert CANARY not in json.dumps(shown)
    assert (shown["bridge"], shown["isGateway"], shown["policy"]) == ("cni0", True, {"k8s_auth_token": HIDDEN})
    assert shown["ipam"]["ranges"] == config["ipam"]["ranges"]
    assert shown["runtimeConfig"]["portMappings"] == [{"hostPort": 80}]
    env = {"CNI_COMMAND": "ADD", "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_UID=u;password={CANARY}", "CNI_TOKEN": CANARY}
    assert cni_environment(env) == {
        "CNI_COMMAND": "ADD",
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_UID=u;password={HIDDEN}",
    }
    execution = Execution(["/opt/cni/bin/bridge"], {**env, "TOKEN": CANARY}, msgspec.json.encode(config))
    assert CANARY.encode() not in sent("ADD bridge", {"request": execution})
    assert b"10.0.0.2" in sent("ADD bridge", {"response": Finished(0, b'{"ips": ["10.0.0.2"]}', b"")}, "OK")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.just("env"), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(json_values, st.sampled_from([PODS, SECRETS, "/registry/secrets/x/s"]))
def test_hiding_keeps_the_form_and_once_is_enough(value, path):
    position = Position(f"POST {path}")
    once = msgspec.json.encode(position.json(json.dumps({"env": [], "value": value}).encode()))
    assert msgspec.json.encode(position.json(once)) == once
    assert msgspec.json.decode(once).keys() == {"env", "value"}
