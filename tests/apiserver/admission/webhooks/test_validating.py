"""Validating webhooks: what they are sent, what their answers cause, and what happens when there is none."""

import asyncio

import msgspec
import pytest

from tests.apiserver.admission.webhooks.conftest import MUTATING, VALIDATING, patch
from tests.apiserver.support import CONFIGS, DEFINITIONS, PODS, WIDGETS, answer_when


async def test_a_webhook_is_sent_the_request_and_may_allow_it(api, hook, webhook, configure, config):
    hook.on("/ok", lambda _request: {"allowed": True, "warnings": ["take care"]})
    await configure(VALIDATING, webhook("/ok"))

    reply = await api.post(CONFIGS, config(a="1"))

    assert (reply.status, reply.warnings) == (201, ['299 - "take care"'])
    [(path, request)] = hook.reviews
    assert path == "/ok"
    assert request["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (request["operation"], request["name"], request["namespace"]) == ("CREATE", "one", "default")
    assert request["object"]["data"] == {"a": "1"}
    assert request["object"]["metadata"]["uid"] == reply.body["metadata"]["uid"]
    assert (request["oldObject"], request["dryRun"]) == (None, False)
    assert request["userInfo"]["username"] == "kubernetes-admin"
    assert hook.queries == ["timeout=10s"]


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (None, 400, 'admission webhook "hook.example.com" denied the request without explanation'),
        ({"message": "no"}, 400, 'admission webhook "hook.example.com" denied the request: no'),
        ({"reason": "Forbidden"}, 400, 'admission webhook "hook.example.com" denied the request: Forbidden'),
        ({"code": 403, "message": "no"}, 403, 'admission webhook "hook.example.com" denied the request: no'),
        ({"code": 200, "message": "no"}, 400, 'admission webhook "hook.example.com" denied the request: no'),
    ],
)
async def test_a_refusal_has_the_code_and_the_words_of_the_webhook(
    api, hook, webhook, configure, config, status, code, message
):
    hook.on("/no", lambda _request: {"allowed": False, **({"status": status} if status else {})})
    await configure(VALIDATING, webhook("/no"))

    reply = await api.post(CONFIGS, config())

    assert (reply.status, reply.message) == (code, message)
    assert (await api.get(f"{CONFIGS}/one")).status == 404


async def test_updates_and_deletions_are_sent_the_old_object(api, hook, webhook, configure, config):
    await api.post(CONFIGS, config(a="1"))
    hook.on("/ok", lambda _request: {"allowed": True})
    await configure(VALIDATING, webhook("/ok", rule={"operations": ["UPDATE", "DELETE"]}))

    await api.patch(f"{CONFIGS}/one", {"data": {"a": "2"}})
    await api.delete(f"{CONFIGS}/one")

    (_, update), (_, deletion) = hook.reviews
    assert (update["oldObject"]["data"], update["object"]["data"]) == ({"a": "1"}, {"a": "2"})
    assert (deletion["oldObject"]["data"], deletion["object"]) == ({"a": "2"}, None)


async def test_selectors_and_conditions_keep_requests_from_a_webhook(api, hook, webhook, configure, config):
    hook.on("/no", lambda _request: {"allowed": False})
    picks = {"matchLabels": {"judged": "yes"}}
    for name, more in {
        "object.example.com": {"objectSelector": picks},
        "namespace.example.com": {"namespaceSelector": picks},
        "condition.example.com": {"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'two'"}]},
    }.items():
        await configure(VALIDATING, webhook("/no", name=name, **more), name=name)

    assert (await api.post(CONFIGS, config())).status == 201
    assert 'webhook "condition.example.com"' in (await api.post(CONFIGS, config("two"))).message
    assert 'webhook "object.example.com"' in (await api.post(CONFIGS, config("x", labels={"judged": "yes"}))).message
    await api.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"judged": "yes"}}})
    assert 'webhook "namespace.example.com"' in (await api.post(CONFIGS, config("three"))).message


async def test_a_condition_that_cannot_be_evaluated_follows_the_failure_policy(api, hook, webhook, configure, config):
    conditions = [{"name": "c", "expression": "object.data.absent == 'x'"}]
    await configure(VALIDATING, webhook("/ok", failurePolicy="Ignore", matchConditions=conditions), name="ignore")
    assert (await api.post(CONFIGS, config())).status == 201
    await configure(VALIDATING, webhook("/ok", matchConditions=conditions), name="fail")

    reply = await api.post(CONFIGS, config("two"))

    assert reply.status == 403
    assert 'configmaps "two" is forbidden' in reply.message
    assert not hook.reviews


async def test_a_webhook_for_one_version_is_sent_others_as_that_one(api, hook, webhook, configure, definition):
    await api.made(DEFINITIONS, definition("v1", "v2"))
    await answer_when(lambda: api.get(WIDGETS), lambda reply: reply.status == 200)
    hook.on("/ok", lambda _request: {"allowed": True})
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v2"], "resources": ["widgets"]}
    await configure(VALIDATING, webhook("/ok", rule=rule), name="equivalent")
    await configure(VALIDATING, webhook("/ok", rule=rule, matchPolicy="Exact"), name="exact")
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}

    assert (await api.post(WIDGETS, body)).status == 201

    [(_, request)] = hook.reviews
    assert request["object"]["apiVersion"] == "example.com/v2"
    assert request["resource"]["version"] == "v2"
    assert request["requestResource"]["version"] == "v1"


async def test_a_webhook_that_answers_too_late_follows_the_failure_policy(api, hook, webhook, configure, config):
    async def late(_request):
        await asyncio.sleep(30)
        return {"allowed": True}

    hook.on("/late", late)
    await configure(VALIDATING, webhook("/late", timeoutSeconds=1), name="fail")

    reply = await api.post(CONFIGS, config())

    assert (reply.status, reply.body["reason"]) == (500, "InternalError")
    assert reply.message == (
        'Internal error occurred: failed calling webhook "hook.example.com": failed to call webhook: '
        f'Post "{hook.url}/late?timeout=1s": context deadline exceeded'
    )
    await api.patch(f"{VALIDATING}/fail", {"webhooks": [{**webhook("/late"), "failurePolicy": "Ignore"}]})
    await api.delete(f"{VALIDATING}/fail")
    await configure(VALIDATING, webhook("/late", timeoutSeconds=1, failurePolicy="Ignore"), name="ignore")
    plugin = api.assembled.webhooks.validating

    async def active():
        return [one.configuration for one in plugin.active]

    await answer_when(active, lambda names: names == ["ignore"])
    assert (await api.post(CONFIGS, config())).status == 201


@pytest.mark.parametrize(
    ("response", "words"),
    [
        ({"raw": b"not JSON"}, "json parse error"),
        ({"raw": b"[" * 100_000}, "json parse error"),
        ({"raw": b"{}"}, "received invalid webhook response: webhook response was absent"),
        ({"allowed": True, "uid": "other"}, "received invalid webhook response: expected response.uid="),
        ({"raw": b"busy", "code": 500}, 'an error on the server ("busy") has prevented the request from succeeding'),
        ({"raw": b"x", "code": 404}, "the server could not find the requested resource"),
        ({"raw": b" " * (4 << 20)}, "the answer has more than 3145728 bytes"),
        (patch({"op": "remove", "path": "/data"}), "validating webhook may not return response.patch"),
        ({"allowed": "yes"}, "webhook response cannot be decoded"),
    ],
)
async def test_an_answer_that_is_none_fails_the_request(api, hook, webhook, configure, config, response, words):
    hook.on("/bad", lambda _request: response)
    await configure(VALIDATING, webhook("/bad"))

    reply = await api.post(CONFIGS, config())

    assert reply.status == 500
    assert 'failed calling webhook "hook.example.com"' in reply.message
    assert words in reply.message


async def test_a_certificate_of_another_authority_is_not_trusted(api, webhook, configure, config):
    hook = webhook("/ok")
    del hook["clientConfig"]["caBundle"]
    await configure(VALIDATING, hook)

    reply = await api.post(CONFIGS, config())

    assert reply.status == 500
    assert "tls: failed to verify certificate: x509: certificate signed by unknown authority" in reply.message


async def test_a_webhook_that_is_not_there_is_a_refused_connection(api, webhook, configure, config):
    hook = webhook("/ok")
    hook["clientConfig"]["url"] = "https://127.0.0.1:1/x"
    await configure(VALIDATING, hook)

    assert "dial tcp 127.0.0.1:1: connect: connection refused" in (await api.post(CONFIGS, config())).message


async def test_webhooks_are_not_called_for_their_own_configurations(api, hook, webhook, configure):
    hook.on("/no", lambda _request: {"allowed": False})
    everything = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    for collection in (VALIDATING, MUTATING):
        await configure(collection, webhook("/no", rule=everything))

    assert (await api.patch(f"{VALIDATING}/c", {"metadata": {"labels": {"a": "b"}}})).status == 200
    assert (await api.delete(f"{MUTATING}/c")).status == 200
    assert (await api.delete(f"{VALIDATING}/c")).status == 200
    assert not hook.reviews


async def test_a_dry_run_needs_a_webhook_without_side_effects(api, hook, webhook, configure, config):
    hook.on("/ok", lambda _request: {"allowed": True})
    await configure(VALIDATING, webhook("/ok", sideEffects="NoneOnDryRun"))

    reply = await api.post(f"{CONFIGS}?dryRun=All", config())

    assert reply.status == 201
    assert hook.reviews[0][1]["dryRun"] is True
    assert hook.reviews[0][1]["options"]["dryRun"] == ["All"]


async def test_several_webhooks_are_called_at_once_over_connections_that_stay(api, hook, webhook, configure, config):
    waiting = asyncio.Barrier(3)

    async def together(_request):
        await waiting.wait()
        return {"allowed": True}

    hook.on("/ok", together)
    await configure(VALIDATING, *(webhook("/ok", name=f"{name}.example.com") for name in "abc"))

    for name in ("one", "two"):
        assert (await api.post(CONFIGS, config(name))).status == 201

    assert len(hook.reviews) == 6
    assert len(hook.peers) == 3


async def test_the_first_refusal_in_order_counts(api, hook, webhook, configure, config):
    hook.on("/no", lambda _request: {"allowed": False})
    await configure(VALIDATING, *(webhook("/no", name=f"{name}.example.com") for name in "ba"), name="z")
    await configure(VALIDATING, webhook("/no", name="first.example.com"), name="a")

    assert 'webhook "first.example.com"' in (await api.post(CONFIGS, config())).message


async def test_connections_and_evictions_are_sent_with_their_subresource(api, hook, webhook, configure, pod):
    await api.made(PODS, pod())
    hook.on("/no", lambda _request: {"allowed": False, "status": {"message": "not here"}})
    rule = {"operations": ["*"], "resources": ["pods/eviction"]}
    await configure(VALIDATING, webhook("/no", rule=rule))

    reply = await api.post(f"{PODS}/web/eviction", {"metadata": {"name": "web"}})

    assert "not here" in reply.message
    [(_, request)] = hook.reviews
    assert request["kind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert (request["subResource"], request["name"]) == ("eviction", "web")


async def test_a_service_is_called_by_its_name_at_a_ready_endpoint(api, hook, webhook, configure, config):
    hook.on("/ok", lambda _request: {"allowed": True})
    spec = {"ports": [{"port": 8443, "name": "web"}]}
    await api.made("/api/v1/namespaces/default/services", {"metadata": {"name": "hook"}, "spec": spec})
    service = {"namespace": "default", "name": "hook", "port": 8443, "path": "/ok"}
    await configure(VALIDATING, webhook("/ok", clientConfig={"service": service, "caBundle": hook.ca}))
    without = await api.post(CONFIGS, config())
    assert 'Post "https://hook.default.svc:8443/ok?timeout=10s": no endpoints available' in without.message
    endpoints = {
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "ports": [{"name": "web", "port": hook.port}],
        "endpoints": [{"addresses": ["127.0.0.1"]}],
    }
    await api.store.create(
        "/registry/endpointslices/default/hook-1",
        msgspec.json.encode({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", **endpoints}),
    )

    assert (await api.post(CONFIGS, config())).status == 201
    assert hook.hosts == {"hook.default.svc:8443"}


async def test_metrics_count_calls_and_refusals(api, hook, webhook, configure, config):
    hook.on("/no", lambda _request: {"allowed": False, "status": {"code": 403}})
    await configure(VALIDATING, webhook("/no"))
    await api.post(CONFIGS, config())

    text = (await api.get("/metrics")).body

    labels = 'name="hook.example.com",type="validating",operation="CREATE"'
    assert f'apiserver_admission_webhook_request_total{{{labels},code="403",rejected="true"}} 1' in text
    rejection = f'apiserver_admission_webhook_rejection_count{{{labels},error_type="no_error",rejection_code="403"}} 1'
    assert rejection in text
    assert f'apiserver_admission_webhook_admission_duration_seconds_count{{{labels},rejected="true"}} 1' in text
