"""The verbs from request to answer: what all of them share."""

import msgspec
import pytest

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}

MADE_BY_UPDATE = {
    "lease": ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {"spec": {}}),
    "endpoints": ("/api/v1/namespaces/default/endpoints", {}),
    "service": ("/api/v1/namespaces/default/services", {"spec": {"ports": [{"port": 80}]}}),
    "event": ("/api/v1/namespaces/default/events", {"involvedObject": {"namespace": "default"}}),
    "limit range": ("/api/v1/namespaces/default/limitranges", {"spec": {"limits": []}}),
    "runtime class": ("/apis/node.k8s.io/v1/runtimeclasses", {"handler": "runc"}),
    "cluster role": (f"{RBAC}/clusterroles", {"rules": []}),
    "role": (f"{RBAC}/namespaces/default/roles", {"rules": []}),
    "cluster role binding": (f"{RBAC}/clusterrolebindings", {"roleRef": ROLE}),
    "role binding": (f"{RBAC}/namespaces/default/rolebindings", {"roleRef": ROLE}),
}
NOT_MADE_BY_UPDATE = {
    "config map": (CONFIGS, {}),
    "secret": ("/api/v1/namespaces/default/secrets", {}),
    "namespace": ("/api/v1/namespaces", {}),
    "node": ("/api/v1/nodes", {}),
}


@pytest.mark.parametrize("kind", MADE_BY_UPDATE)
async def test_these_kinds_are_made_by_an_update(api, kind):
    url, body = MADE_BY_UPDATE[kind]

    made = await api.put(f"{url}/x", {"metadata": {"name": "x"}, **body})

    assert made.status == 201, made.raw
    assert made.body["metadata"]["uid"]
    assert (await api.get(f"{url}/x")).raw == made.raw
    again = await api.put(f"{url}/x", made.body)
    assert (again.status, again.raw) == (200, made.raw)


@pytest.mark.parametrize("kind", NOT_MADE_BY_UPDATE)
async def test_other_kinds_are_not(api, kind):
    url, body = NOT_MADE_BY_UPDATE[kind]

    assert (await api.put(f"{url}/x", {"metadata": {"name": "x"}, **body})).status == 404


async def test_an_update_does_not_make_a_status(api):
    assert (await api.put("/api/v1/namespaces/default/services/x/status", {"metadata": {"name": "x"}})).status == 404


async def test_a_dry_run_of_an_update_that_would_make_something_makes_nothing(api):
    url, body = MADE_BY_UPDATE["lease"]

    reply = await api.put(f"{url}/x?dryRun=All", {"metadata": {"name": "x"}, **body})

    assert reply.status == 201
    assert (await api.get(f"{url}/x")).status == 404


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_every_write_answers_in_the_form_that_was_asked_for(api, config, forms):
    table, partial = forms["table"], forms["metadata"]

    created = await api.post(CONFIGS, config("a"), accept=table)
    updated = await api.put(f"{CONFIGS}/a", config("a", x="1"), accept=partial)
    patched = await api.patch(f"{CONFIGS}/a", {"data": {"x": "2"}}, accept=table)
    deleted = await api.delete(CONFIGS, accept=partial)

    kinds = [item.body["kind"] for item in (created, updated, patched, deleted)]
    assert kinds == ["Table", "PartialObjectMetadata", "Table", "PartialObjectMetadataList"]
    assert created.status == 201


async def test_every_write_warns(api, config):
    bogus = {"bogus": 1}

    created = await api.post(CONFIGS, {**config("a"), **bogus})
    updated = await api.put(f"{CONFIGS}/a", {**config("a"), **bogus})
    patched = await api.patch(f"{CONFIGS}/a", bogus)

    for reply in (created, updated, patched):
        assert reply.warnings == ['299 - "unknown field \\"bogus\\""']


async def test_a_read_is_the_bytes_that_were_stored(api, config):
    made = await api.post(CONFIGS, config("a", text='ünï\u2028 \U0001f600 \\ " </script>'))

    assert made.body["data"]["text"] == 'ünï\u2028 \U0001f600 \\ " </script>'
    listed = (await api.get(CONFIGS)).raw
    assert made.raw in listed


# --- deletion's body --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({}, id="empty"),
        pytest.param({"kind": "DeleteOptions", "apiVersion": "v1"}, id="as kubectl says it"),
        pytest.param({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}, id="as client-go says it"),
        pytest.param(b"kind: DeleteOptions\n", id="YAML"),
    ],
)
async def test_a_deletions_options_come_in_many_words(api, config, body):
    await api.made(CONFIGS, config("a"))
    content_type = "application/yaml" if isinstance(body, bytes) else "application/json"

    assert (await api.delete(f"{CONFIGS}/a", body, content_type=content_type)).status == 200


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[]", id="a list"),
        pytest.param(b"{", id="no JSON"),
        pytest.param(b'{"gracePeriodSeconds":"soon"}', id="a wrong type"),
        pytest.param(b'{"kind":"Pod","apiVersion":"v1"}', id="another kind"),
    ],
)
async def test_invalid_delete_options_delete_nothing(api, config, body):
    await api.made(CONFIGS, config("a"))

    assert (await api.delete(f"{CONFIGS}/a", body)).status == 400
    assert (await api.get(f"{CONFIGS}/a")).status == 200


# --- dry runs ---------------------------------------------------------------------------------------------------------


async def test_no_dry_run_of_any_verb_leaves_a_trace(api, pod, config, deployment):
    await api.made(CONFIGS, config("a"))
    await api.made(PODS, pod("web"))
    await api.made("/apis/apps/v1/namespaces/default/deployments", deployment())
    await api.made("/api/v1/namespaces", {"metadata": {"name": "team"}})
    before = (await api.store.list("/registry/")).items
    revision = api.store.revision

    replies = [
        await api.post(f"{CONFIGS}?dryRun=All", config("b")),
        await api.put(f"{CONFIGS}/a?dryRun=All", config("a", x="1")),
        await api.patch(f"{CONFIGS}/a?dryRun=All", {"data": {"x": "1"}}),
        await api.delete(f"{CONFIGS}/a?dryRun=All"),
        await api.delete(f"{CONFIGS}?dryRun=All"),
        await api.delete("/api/v1/namespaces/team?dryRun=All"),
        await api.patch(f"{PODS}/web/status?dryRun=All", {"status": {"phase": "Running"}}),
        await api.post(f"{PODS}/web/binding?dryRun=All", {"target": {"name": "n1"}}),
        await api.post(f"{PODS}/web/eviction?dryRun=All", {"metadata": {"name": "web"}}),
        await api.patch("/apis/apps/v1/namespaces/default/deployments/web/scale?dryRun=All", {"spec": {"replicas": 7}}),
        await api.post(
            "/api/v1/namespaces/default/services?dryRun=All",
            {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}},
        ),
    ]

    assert [reply.status for reply in replies] == [201, 200, 200, 200, 200, 200, 200, 201, 201, 200, 201]
    assert api.store.revision == revision
    assert (await api.store.list("/registry/")).items == before


async def test_answers_are_complete_json_for_any_request(api, config, forms):
    await api.made(CONFIGS, config("a"))

    for url in (CONFIGS, f"{CONFIGS}/a", f"{CONFIGS}/none", "/api/v1/nothing"):
        for form in forms.values():
            reply = await api.get(url, accept=form)
            assert msgspec.json.decode(reply.raw)
