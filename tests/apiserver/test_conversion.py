"""CRD conversion webhooks: objects are read in any version and stored in one, by a real webhook over TLS."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from podwire.cluster.webhook_client import webhook_client
from tests.apiserver.admission.webhooks.conftest import WebhookServer, hook
from tests.apiserver.support import DEFINITIONS, Api, answer_when

__all__ = ["hook"]

V1, V2 = (f"/apis/example.com/{version}/namespaces/default/widgets" for version in ("v1", "v2"))


@pytest.fixture
async def api(serve) -> AsyncIterator[Api]:
    async with contextlib.AsyncExitStack() as stack:
        yield await serve(webhooks=await stack.enter_async_context(webhook_client()))


def convert(request: dict[str, Any]) -> dict[str, Any]:
    """v1 has `hostPort`, v2 has `host` and `port`."""
    version, converted = request["desiredAPIVersion"], []
    for obj in request["objects"]:
        new = {**obj, "apiVersion": version, "metadata": {**obj["metadata"], "labels": {"converted": "yes"}}}
        if version.endswith("v2") and "hostPort" in new:
            new["host"], new["port"] = new.pop("hostPort").split(":")
        elif version.endswith("v1") and "host" in new:
            new["hostPort"] = f"{new.pop('host')}:{new.pop('port')}"
        converted.append(new)
    return {"result": {"status": "Success"}, "convertedObjects": converted}


@pytest.fixture
async def widgets(api, hook, definition) -> WebhookServer:
    """A definition whose v1 is stored."""
    crd = definition("v1", "v2")
    config = {"url": f"{hook.url}/convert", "caBundle": hook.ca}
    crd["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]},
    }
    hook.on("/convert", convert)
    await api.made(DEFINITIONS, crd)
    await answer_when(lambda: api.get(V2), lambda reply: reply.status == 200)
    return hook


def widget(version: str, name: str = "w", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": f"example.com/{version}", "kind": "Widget", "metadata": {"name": name}, **fields}


async def test_an_object_is_read_in_both_versions(api, widgets):
    made = await api.post(V1, widget("v1", hostPort="a:80"))
    assert made.status == 201
    assert not widgets.reviews

    other = await api.get(f"{V2}/w")

    assert (other.body["apiVersion"], other.body["host"], other.body["port"]) == ("example.com/v2", "a", "80")
    assert other.body["metadata"]["uid"] == made.body["metadata"]["uid"]
    assert other.version == made.version
    assert other.body["metadata"]["labels"] == {"converted": "yes"}
    assert (await api.get(f"{V1}/w")).body["hostPort"] == "a:80"


async def test_an_object_is_stored_in_the_storage_version(api, widgets):
    made = await api.post(V2, widget("v2", host="a", port="80"))

    assert (made.status, made.body["host"]) == (201, "a")
    stored = await api.store.get("/registry/example.com/widgets/default/w")
    assert b'"apiVersion":"example.com/v1"' in stored.value
    assert b'"hostPort":"a:80"' in stored.value
    changed = await api.patch(f"{V2}/w", {"port": "81"})
    assert (changed.status, changed.body["port"]) == (200, "81")
    assert (await api.get(f"{V1}/w")).body["hostPort"] == "a:81"
    assert (await api.delete(f"{V2}/w")).status == 200


async def test_a_list_is_converted_by_one_call(api, widgets):
    for name in ("a", "b", "c"):
        await api.post(V1, widget("v1", name, hostPort=f"{name}:80"))

    listed = await api.get(V2)

    assert [one["host"] for one in listed.body["items"]] == ["a", "b", "c"]
    assert len(widgets.reviews) == 1
    assert widgets.reviews[0][1]["desiredAPIVersion"] == "example.com/v2"


async def test_a_watch_is_converted(api, widgets):
    watching = await api.watch(V2)
    await api.post(V1, widget("v1", hostPort="a:80"))
    await api.delete(f"{V1}/w")

    frames = await watching.take(2)

    assert [(frame["type"], frame["object"]["host"]) for frame in frames] == [("ADDED", "a"), ("DELETED", "a")]


@pytest.mark.parametrize(
    ("response", "words"),
    [
        ({"result": {"status": "Failed", "message": "no way"}}, "failed: no way"),
        ({"result": {"status": "Failed"}}, "failed: response.result.status was 'Failed', not 'Success'"),
        ({"result": {"status": "Success"}, "convertedObjects": []}, "returned 0 objects, expected 1"),
        (
            {"result": {"status": "Success"}, "convertedObjects": [{"metadata": {}, "apiVersion": "x/v1"}]},
            "converted object at index 0: invalid groupVersion (expected example.com/v2, received x/v1)",
        ),
        ({"raw": b"x", "code": 404}, "failed: the server could not find the requested resource"),
    ],
)
async def test_a_failed_conversion_fails_the_request(api, widgets, response, words):
    await api.post(V1, widget("v1", hostPort="a:80"))
    widgets.on("/convert", lambda _request: response)

    for url in (V2, f"{V2}/w"):
        reply = await api.get(url)
        assert reply.status == 500
        assert "conversion webhook for example.com/v1, Kind=Widget" in reply.message
        assert words in reply.message
    assert (await api.get(f"{V1}/w")).status == 200


async def test_a_definition_says_where_its_webhook_is(api, definition):
    crd = definition("v1", "v2")
    crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v9"]}}

    reply = await api.post(DEFINITIONS, crd)

    assert reply.status == 422
    assert (
        "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook" in reply.message
    )
    assert "must include at least one of v1, v1beta1" in reply.message


async def test_a_deleted_definition_ends_its_watches(api, definition):
    await api.made(DEFINITIONS, definition("v1"))
    await answer_when(lambda: api.get(V1), lambda reply: reply.status == 200)
    watching = await api.watch(V1)
    url = f"{DEFINITIONS}/widgets.example.com"

    await api.delete(url)
    await api.patch(url, {"metadata": {"finalizers": None}})

    assert await watching.rest() == []
    gone = await answer_when(lambda: api.get(V1), lambda reply: reply.status == 404)
    assert gone.body == "404 page not found\n"
