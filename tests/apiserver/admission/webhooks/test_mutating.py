"""Mutating webhooks: patches, their order, the second round, and what they cannot change."""

import pytest

from tests.apiserver.admission.webhooks.conftest import MUTATING, VALIDATING, add, patch
from tests.apiserver.support import CONFIGS, DEFINITIONS, PODS, WIDGETS, answer_when


async def test_a_patch_changes_the_object_and_validating_webhooks_see_it(api, hook, webhook, configure, config):
    hook.on("/m", lambda _request: patch(add("/data/b", "2")))
    hook.on("/v", lambda _request: {"allowed": True})
    await configure(MUTATING, webhook("/m"))
    await configure(VALIDATING, webhook("/v"))

    reply = await api.post(CONFIGS, config(a="1"))

    assert reply.body["data"] == {"a": "1", "b": "2"}
    assert hook.called == ["/m", "/v"]
    assert hook.reviews[1][1]["object"]["data"] == {"a": "1", "b": "2"}
    assert (await api.get(f"{CONFIGS}/one")).body["data"] == {"a": "1", "b": "2"}


async def test_webhooks_are_called_in_order_and_see_the_changes_before_them(api, hook, webhook, configure, config):
    hook.on("/1", lambda _request: patch(add("/data/first", "x")))
    hook.on("/2", lambda request: patch(add("/data/second", str(sorted(request["object"]["data"])))))
    await configure(MUTATING, webhook("/2", name="two.example.com"), name="b")
    await configure(MUTATING, webhook("/1", name="one.example.com"), name="a")

    reply = await api.post(CONFIGS, config(a="1"))

    assert reply.body["data"]["second"] == "['a', 'first']"


async def test_a_changed_pod_gets_its_defaults(api, hook, webhook, configure, pod):
    container = {"name": "more", "image": "busybox:1.36"}
    hook.on("/m", lambda _request: patch(add("/spec/initContainers", [container])))
    await configure(MUTATING, webhook("/m", rule={"resources": ["pods"]}))

    reply = await api.post(PODS, pod())

    assert reply.status == 201, reply.raw
    assert reply.body["spec"]["initContainers"][0]["terminationMessagePolicy"] == "File"


async def test_a_webhook_before_a_change_is_called_again_if_it_wants(api, hook, webhook, configure, config):
    hook.on("/first", lambda _request: {"allowed": True})
    hook.on("/never", lambda _request: {"allowed": True})
    hook.on("/change", lambda _request: patch(add("/data/b", "2")))
    await configure(
        MUTATING,
        webhook("/first", name="a.example.com", reinvocationPolicy="IfNeeded"),
        webhook("/never", name="b.example.com"),
        webhook("/change", name="c.example.com"),
    )

    await api.post(CONFIGS, config(a="1"))

    assert hook.called == ["/first", "/never", "/change", "/first"]
    assert hook.reviews[-1][1]["object"]["data"] == {"a": "1", "b": "2"}


async def test_nobody_is_called_again_without_a_change(api, hook, webhook, configure, config):
    hook.on("/same", lambda _request: patch(add("/data/a", "1")))
    await configure(MUTATING, *(webhook("/same", name=f"{n}.example.com", reinvocationPolicy="IfNeeded") for n in "ab"))

    await api.post(CONFIGS, config(a="1"))

    assert len(hook.called) == 2


async def test_identity_and_managed_fields_are_not_a_webhook_s_to_change(api, hook, webhook, configure, config):
    hook.on("/m", lambda _request: patch(add("/metadata/uid", "x"), add("/metadata/managedFields", [])))
    await configure(MUTATING, webhook("/m"))

    reply = await api.post(CONFIGS, config(a="1"))

    assert reply.body["metadata"]["uid"] != "x"
    assert reply.body["metadata"]["managedFields"]


async def test_a_status_update_changes_the_status_only(api, hook, webhook, configure, pod):
    await api.made(PODS, pod())
    hook.on("/m", lambda _request: patch(add("/spec/priority", 7), add("/status/message", "hello")))
    await configure(MUTATING, webhook("/m", rule={"resources": ["pods/status"]}))

    reply = await api.patch(f"{PODS}/web/status", {"status": {"reason": "x"}})

    assert (reply.status, reply.body["status"]["message"]) == (200, "hello")
    assert reply.body["spec"]["priority"] == 0


async def test_a_custom_resource_is_changed_and_pruned(api, hook, webhook, configure, definition):
    crd = definition("v1")
    schema = {"type": "object", "properties": {"data": {"type": "object", "properties": {"a": {"type": "string"}}}}}
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    await api.made(DEFINITIONS, crd)
    await answer_when(lambda: api.get(WIDGETS), lambda reply: reply.status == 200)
    hook.on("/m", lambda _request: patch(add("/data/a", "1"), add("/data/unknown", "2")))
    rule = {"apiGroups": ["example.com"], "resources": ["widgets"]}
    await configure(MUTATING, webhook("/m", rule=rule))
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "data": {}}

    assert (await api.post(WIDGETS, body)).body["data"] == {"a": "1"}


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (patch({"op": "remove", "path": "/spec/none"}), "Internal error occurred"),
        ({**patch(add("/data", {})), "patchType": None}, "webhook returned response.patch but not response.patchType"),
        ({**patch(add("/data", {})), "patchType": "Merge"}, 'unsupported patch type "Merge"'),
        ({"allowed": True, "patch": "!", "patchType": "JSONPatch"}, "received undecodable patch"),
        (patch(add("/data", "text")), "cannot be handled as a ConfigMap"),
    ],
)
async def test_a_patch_that_does_not_apply_fails_the_request(api, hook, webhook, configure, config, response, words):
    hook.on("/m", lambda _request: response)
    await configure(MUTATING, webhook("/m"))

    reply = await api.post(CONFIGS, config(a="1"))

    assert reply.status in (400, 500)
    assert words in reply.message


async def test_a_deletion_cannot_be_changed(api, hook, webhook, configure, config):
    await api.post(CONFIGS, config(a="1"))
    hook.on("/m", lambda _request: patch(add("/data/b", "2")))
    await configure(MUTATING, webhook("/m", rule={"operations": ["DELETE"]}))

    reply = await api.delete(f"{CONFIGS}/one")

    assert reply.status == 500
    assert "attempted to modify the object, which is not supported for this operation" in reply.message


async def test_a_service_keeps_one_address_when_webhooks_run_twice(api, hook, webhook, configure):
    hook.on("/m", lambda _request: patch(add("/metadata/labels", {"a": "b"})))
    await configure(MUTATING, webhook("/m", rule={"resources": ["services"]}, reinvocationPolicy="IfNeeded"))

    reply = await api.post(
        "/api/v1/namespaces/default/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    )

    assert reply.status == 201, reply.raw
    assert reply.body["metadata"]["labels"] == {"a": "b"}
    addresses = await api.store.list("/registry/ipaddresses/")
    assert len([item for item in addresses.items if b'"name":"s"' in item.value]) <= 1
