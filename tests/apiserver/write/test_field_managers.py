"""`managedFields` after every kind of write: whose name, which fields, and how they are forgotten."""

import msgspec
import pytest

from podwire.apiserver.write.field_managers import manager_name
from podwire.kinds.apply.last_applied import ANNOTATION
from tests.apiserver.support import CONFIGS, PODS

AGENT = {"user-agent": "kubelet/v1.36.0 (linux/amd64) kubernetes/abc"}


def configmap(name="one", **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def managers(obj):
    return [
        (field["manager"], field["operation"], field.get("subresource", ""))
        for field in obj["metadata"].get("managedFields", [])
    ]


@pytest.mark.parametrize(
    ("manager", "agent", "wanted"),
    [
        ("me", "kubectl/v1", "me"),
        ("", "kubectl/v1.36 (linux)", "kubectl"),
        ("", "Mozilla", "Mozilla"),
        ("", "a\tb\u00ad/c", "ab"),
        ("", "x" * 200, "x" * 128),
        ("", "", ""),
    ],
)
def test_a_writer_is_called_by_its_name_or_its_program_s(manager, agent, wanted):
    assert manager_name(manager, agent) == wanted


@pytest.mark.parametrize(("query", "wanted"), [("?fieldManager=me", "me"), ("", "kubelet")])
async def test_the_creator_owns_all_fields(api, query, wanted):
    made = (await api.post(f"{CONFIGS}{query}", configmap(a="1"), headers=AGENT)).body
    assert made["metadata"]["managedFields"] == [
        {
            "manager": wanted,
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2027-01-15T08:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:a": {}}},
        }
    ]


async def test_a_node_that_comes_with_its_status_does_not_own_that(api):
    node = {"metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"}, "status": {"capacity": {"cpu": "1"}}}
    made = (await api.post("/api/v1/nodes", node, headers=AGENT)).body
    assert made["status"]["capacity"] == {"cpu": "1"}
    assert {*made["metadata"]["managedFields"][0]["fieldsV1"]} == {"f:spec"}


async def test_a_manager_without_a_name_is_unknown(api):
    assert managers((await api.post(CONFIGS, configmap(a="1"))).body) == [("unknown", "Update", "")]


async def test_an_update_owns_the_changed_fields(api):
    await api.post(f"{CONFIGS}?fieldManager=one", configmap(a="1", b="2"))
    api.clock.move(1)
    body = (await api.put(f"{CONFIGS}/one?fieldManager=two", configmap(a="1", b="3"))).body
    one, two = body["metadata"]["managedFields"]
    assert (one["manager"], one["fieldsV1"]) == ("one", {"f:data": {".": {}, "f:a": {}}})
    assert (two["manager"], two["fieldsV1"], two["time"]) == ("two", {"f:data": {"f:b": {}}}, "2027-01-15T08:00:01Z")


@pytest.mark.parametrize(
    ("form", "patch"),
    [
        ("merge", {"data": {"b": "3"}}),
        ("strategic", {"data": {"b": "3"}}),
        ("json", [{"op": "replace", "path": "/data/b", "value": "3"}]),
    ],
)
async def test_a_patch_owns_the_changed_fields(api, form, patch):
    await api.post(f"{CONFIGS}?fieldManager=one", configmap(a="1", b="2"))
    body = (await api.patch(f"{CONFIGS}/one?fieldManager=two", patch, form)).body
    assert [field["fieldsV1"] for field in body["metadata"]["managedFields"]] == [
        {"f:data": {".": {}, "f:a": {}}},
        {"f:data": {"f:b": {}}},
    ]


async def test_a_write_without_a_change_is_not_a_write(api):
    made = await api.post(f"{CONFIGS}?fieldManager=one", configmap(a="1"))
    api.clock.move(60)
    again = await api.patch(f"{CONFIGS}/one?fieldManager=two", {"data": {"a": "1"}})
    assert again.body == made.body


async def test_a_status_has_an_owner_of_its_own(api, pod):
    await api.post(f"{PODS}?fieldManager=kubectl", pod())
    patch = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    body = (await api.patch(f"{PODS}/web/status", patch, "strategic", headers=AGENT)).body
    assert managers(body) == [("kubectl", "Update", ""), ("kubelet", "Update", "status")]
    assert body["metadata"]["managedFields"][1]["fieldsV1"] == {
        "f:status": {
            "f:conditions": {".": {}, 'k:{"type":"Ready"}': {".": {}, "f:status": {}, "f:type": {}}},
            "f:phase": {},
        }
    }


async def test_a_binding_adds_no_manager(api, pod):
    await api.post(f"{PODS}?fieldManager=kubectl", pod())
    await api.post(f"{PODS}/web/binding", {"metadata": {"name": "web"}, "target": {"name": "n1"}}, headers=AGENT)
    body = (await api.get(f"{PODS}/web")).body
    assert body["spec"]["nodeName"] == "n1"
    assert managers(body) == [("kubectl", "Update", "")]


async def test_an_object_sent_back_unchanged_keeps_its_managers(api):
    made = await api.post(f"{CONFIGS}?fieldManager=one", configmap(a="1"))
    body = (await api.put(f"{CONFIGS}/one?fieldManager=two", made.body)).body
    assert body == made.body


@pytest.mark.parametrize("reset", [[], [{}]])
async def test_managers_are_forgotten_when_a_client_asks_for_it(api, reset):
    await api.post(f"{CONFIGS}?fieldManager=one", configmap(a="1"))
    patch = [{"op": "replace", "path": "/metadata/managedFields", "value": reset}]
    assert "managedFields" not in (await api.patch(f"{CONFIGS}/one", patch, "json")).body["metadata"]
    assert "managedFields" not in (await api.patch(f"{CONFIGS}/one", {"data": {"a": "2"}})).body["metadata"]
    applied = await api.patch(f"{CONFIGS}/one?fieldManager=me", configmap(b="3"), "apply")
    assert managers(applied.body) == [("me", "Apply", ""), ("before-first-apply", "Update", "")]


async def test_null_and_nonsense_do_not_forget_them(api):
    await api.post(f"{CONFIGS}?fieldManager=one", configmap(a="1"))
    for value in (None, [{"manager": "x", "operation": "Steal"}], [{"manager": "x", "operation": "Apply"}]):
        body = (await api.patch(f"{CONFIGS}/one", {"metadata": {"managedFields": value}})).body
        assert managers(body) == [("one", "Update", "")]


async def test_a_client_may_hand_its_fields_to_another_manager(api):
    """As kubectl does when it turns from client-side to server-side apply."""
    made = (await api.post(f"{CONFIGS}?fieldManager=kubectl-client-side-apply", configmap(a="1"))).body
    entry = {**made["metadata"]["managedFields"][0], "manager": "kubectl", "operation": "Apply"}
    patch = [{"op": "replace", "path": "/metadata/managedFields", "value": [entry]}]
    body = (await api.patch(f"{CONFIGS}/one", patch, "json")).body
    assert managers(body) == [("kubectl", "Apply", "")]


async def test_more_than_ten_writers_are_bundled(api):
    await api.post(f"{CONFIGS}?fieldManager=m0", configmap(a="1"))
    for item in range(1, 15):
        api.clock.move(1)
        await api.patch(f"{CONFIGS}/one?fieldManager=m{item}", {"data": {f"k{item}": "x"}})
    body = (await api.get(f"{CONFIGS}/one")).body
    found = [name for name, *_ in managers(body)]
    assert found == ["ancient-changes", *(f"m{number}" for number in range(6, 15))]


async def test_kubectl_migrates_to_server_side_apply_without_conflicts(api):
    last = msgspec.json.encode(configmap(a="1")).decode()
    made = configmap(a="1")
    made["metadata"]["annotations"] = {ANNOTATION: last}
    await api.post(f"{CONFIGS}?fieldManager=kubectl-client-side-apply", made)
    refused = await api.patch(f"{CONFIGS}/one?fieldManager=other", configmap(a="2"), "apply")
    assert refused.message == (
        'Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.a'
    )
    reply = await api.patch(f"{CONFIGS}/one?fieldManager=kubectl", configmap(a="2"), "apply")
    assert (reply.status, reply.body["data"]) == (200, {"a": "2"})
    result = msgspec.json.decode(reply.body["metadata"]["annotations"][ANNOTATION])
    assert result["data"] == {"a": "2"}, "who turns back finds what was applied last"


async def test_the_migration_conflicts_with_later_changes_of_others(api):
    made = configmap(a="1")
    made["metadata"]["annotations"] = {ANNOTATION: msgspec.json.encode(configmap(a="1")).decode()}
    await api.post(f"{CONFIGS}?fieldManager=kubectl-client-side-apply", made)
    await api.patch(f"{CONFIGS}/one?fieldManager=hand", {"data": {"a": "3"}})
    reply = await api.patch(f"{CONFIGS}/one?fieldManager=kubectl", configmap(a="2"), "apply")
    assert reply.message == 'Apply failed with 1 conflict: conflict with "hand" using v1: .data.a'


async def test_a_kind_in_two_groups_has_one_list_of_managers(api):
    """An event has other names for its fields in events.k8s.io."""
    event = {
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Made", "message": "one", "type": "Normal", "source": {"component": "me"},
    }  # fmt: skip
    await api.post("/api/v1/namespaces/default/events?fieldManager=one", event)
    url = "/apis/events.k8s.io/v1/namespaces/default/events/e"
    body = (await api.patch(f"{url}?fieldManager=two", {"deprecatedCount": 2})).body
    found = {field["manager"]: field for field in body["metadata"]["managedFields"]}
    assert found["two"]["fieldsV1"] == {"f:deprecatedCount": {}}
    assert {"f:message", "f:reason"} <= {*found["one"]["fieldsV1"]}


async def test_definitions_are_established_in_the_server_s_name(widgets):
    url = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    body = (await widgets.get(url)).body
    assert ("kube-apiserver", "Update", "status") in managers(body)
