"""scale: replicas of whatever kind has them."""

import pytest

from tests.apiserver.support import answer_when

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CONTROLLERS = "/api/v1/namespaces/default/replicationcontrollers"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
SCALE = f"{DEPLOYMENTS}/web/scale"


@pytest.fixture
async def web(api, deployment):
    """A server with a deployment of two."""
    await api.made(DEPLOYMENTS, deployment(replicas=2))
    await api.patch(f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 1}})
    return api


async def test_a_scale_shows_replicas_status_and_selector(web):
    whole = (await web.get(f"{DEPLOYMENTS}/web")).body["metadata"]

    reply = await web.get(SCALE)

    assert (reply.body["kind"], reply.body["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert reply.body["spec"] == {"replicas": 2}
    assert reply.body["status"] == {"replicas": 1, "selector": "app=web"}
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    assert reply.body["metadata"] == {key: whole[key] for key in kept}


async def test_scaling_by_update_changes_the_replicas_only(web):
    scale = (await web.get(SCALE)).body

    reply = await web.put(SCALE, {**scale, "spec": {"replicas": 5}})

    assert (reply.status, reply.body["spec"]) == (200, {"replicas": 5})
    whole = (await web.get(f"{DEPLOYMENTS}/web")).body
    assert whole["spec"]["replicas"] == 5
    assert whole["metadata"]["generation"] == 2


@pytest.mark.parametrize("kind", ["merge", "strategic", "json"])
async def test_scaling_by_patch(web, kind):
    patch = [{"op": "replace", "path": "/spec/replicas", "value": 4}] if kind == "json" else {"spec": {"replicas": 4}}

    reply = await web.patch(SCALE, patch, kind)

    assert reply.body["spec"] == {"replicas": 4}


async def test_scaling_to_none_is_possible(web):
    await web.patch(SCALE, {"spec": {"replicas": 0}})

    assert (await web.get(SCALE)).body["spec"] == {"replicas": 0}


async def test_a_stale_scale_is_a_conflict(web):
    scale = (await web.get(SCALE)).body
    await web.patch(f"{DEPLOYMENTS}/web", {"metadata": {"labels": {"x": "y"}}})

    reply = await web.put(SCALE, {**scale, "spec": {"replicas": 5}})

    assert reply.status == 409


async def test_a_negative_scale_is_invalid(web):
    reply = await web.patch(SCALE, {"spec": {"replicas": -1}})

    assert reply.status == 422
    assert "must be greater than or equal to 0" in reply.message


async def test_a_missing_object_has_no_scale(api):
    reply = await api.get(SCALE)

    assert (reply.status, reply.message) == (404, 'deployments.apps "web" not found')
    assert (await api.patch(SCALE, {"spec": {"replicas": 1}})).status == 404


async def test_a_replication_controllers_plain_selector_is_shown_too(api):
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"app": "x"}, "template": template}
    await api.made(CONTROLLERS, {"metadata": {"name": "rc"}, "spec": spec})

    assert (await api.get(f"{CONTROLLERS}/rc/scale")).body["status"]["selector"] == "app=x"


async def test_a_custom_resource_defines_the_paths_of_its_scale(api, definition):
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.sel"}
    await api.made(DEFINITIONS, definition(subresources={"scale": scale, "status": {}}))
    await answer_when(lambda: api.get(WIDGETS), lambda reply: reply.status == 200)
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}}
    await api.made(WIDGETS, widget)
    await api.patch(f"{WIDGETS}/w/status", {"status": {"size": 1, "sel": "app=w"}})

    shown = (await api.get(f"{WIDGETS}/w/scale")).body
    scaled = await api.patch(f"{WIDGETS}/w/scale", {"spec": {"replicas": 7}})

    assert (shown["spec"], shown["status"]) == ({"replicas": 3}, {"replicas": 1, "selector": "app=w"})
    assert scaled.body["spec"] == {"replicas": 7}
    assert (await api.get(f"{WIDGETS}/w")).body["spec"] == {"size": 7}


async def test_a_dry_run_scales_nothing(web):
    revision = web.store.revision

    reply = await web.patch(f"{SCALE}?dryRun=All", {"spec": {"replicas": 9}})

    assert reply.body["spec"] == {"replicas": 9}
    assert web.store.revision == revision
