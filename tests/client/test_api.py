"""The verbs of the client, against a real API server."""

import asyncio

import jwt
import pytest

from podwire.client import Added, ApiError, Deleted, PatchType, Propagation, Reason, Synced, Updated
from podwire.client.api import ALL_NAMESPACES
from tests.eventually import eventually_async


def config_map(name: str, **more) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}


def pod(name: str) -> dict:
    containers = [{"name": "c", "image": "podwire.local/busybox"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}}


async def test_an_object_is_created_read_updated_patched_and_deleted(api):
    made = await api.create(config_map("a", data={"k": "1"}))
    assert made["metadata"]["namespace"] == "default"
    made["data"]["k"] = "2"
    updated = await api.update(made)
    assert updated["data"] == {"k": "2"}
    patched = await api.patch("v1", "ConfigMap", "a", {"data": {"k": None, "l": "3"}})
    assert patched["data"] == {"l": "3"}
    operations = [{"op": "add", "path": "/data/m", "value": "4"}]
    await api.patch("v1", "ConfigMap", "a", operations, type_=PatchType.JSON)
    assert (await api.get("v1", "ConfigMap", "a"))["data"] == {"l": "3", "m": "4"}
    with pytest.raises(ApiError) as stale:
        await api.update(made)
    assert (stale.value.reason, stale.value.code) == (Reason.CONFLICT, 409)
    await api.delete("v1", "ConfigMap", "a", propagation=Propagation.BACKGROUND)
    with pytest.raises(ApiError) as gone:
        await api.get("v1", "ConfigMap", "a")
    assert (gone.value.reason, gone.value.code) == (Reason.NOT_FOUND, 404)
    assert gone.value.details["name"] == "a"


async def test_a_dry_run_changes_nothing(api):
    await api.create(config_map("kept"))
    await api.create(config_map("a"), dry_run=True)
    await api.apply(config_map("b"), field_manager="me", dry_run=True)
    await api.patch("v1", "ConfigMap", "kept", {"data": {"x": "y"}}, dry_run=True)
    await api.delete("v1", "ConfigMap", "kept", dry_run=True)
    [found] = [object_ async for object_ in api.list("v1", "ConfigMap")]
    assert (found["metadata"]["name"], found.get("data")) == ("kept", None)


async def test_a_deletion_may_have_preconditions(api):
    await api.create(config_map("a"))
    with pytest.raises(ApiError, match="the UID in the precondition"):
        await api.delete("v1", "ConfigMap", "a", uid="another")


async def test_fields_of_another_manager_are_taken_over_by_force_only(api):
    await api.apply(config_map("a", data={"k": "1"}), field_manager="one")
    with pytest.raises(ApiError) as conflict:
        await api.apply(config_map("a", data={"k": "2"}), field_manager="two")
    assert conflict.value.reason is Reason.CONFLICT
    assert conflict.value.details["causes"][0]["field"] == ".data.k"
    forced = await api.apply(config_map("a", data={"k": "2"}), field_manager="two", force=True)
    assert forced["data"] == {"k": "2"}


@pytest.mark.parametrize("limit", [1, 7, 25, 100, 0])
async def test_a_list_is_iterated_page_by_page(api, limit):
    for number in range(25):
        await api.create(config_map(f"m-{number:02}"))
    names = [object_["metadata"]["name"] async for object_ in api.list("v1", "ConfigMap", limit=limit)]
    assert names == [f"m-{number:02}" for number in range(25)]


async def test_members_of_a_list_say_what_they_are_and_selectors_choose_them(api):
    for name, app in (("a", "x"), ("b", "y")):
        await api.create({**config_map(name), "metadata": {"name": name, "labels": {"app": app}}})
    [found] = [object_ async for object_ in api.list("v1", "ConfigMap", ALL_NAMESPACES, labels="app=x")]
    assert (found["kind"], found["apiVersion"], found["metadata"]["name"]) == ("ConfigMap", "v1", "a")
    [found] = [object_ async for object_ in api.list("v1", "ConfigMap", fields="metadata.name=b", metadata_only=True)]
    assert (found["metadata"]["name"], found.get("data")) == ("b", None)
    await api.delete_collection("v1", "ConfigMap", labels="app=x")
    assert [object_["metadata"]["name"] for object_ in (await api.snapshot("v1", "ConfigMap")).items] == ["b"]


async def test_a_list_that_is_left_early_leaves_nothing_behind(api):
    for number in range(5):
        await api.create(config_map(f"m-{number}"))
    before = asyncio.all_tasks()
    async for _ in api.list("v1", "ConfigMap", limit=2):
        break
    await eventually_async(lambda: asyncio.all_tasks() <= before)


async def test_a_watch_goes_on_from_a_snapshot(api):
    await api.create(config_map("old"))
    snapshot = await api.snapshot("v1", "ConfigMap")
    await api.create(config_map("new"))
    await api.delete("v1", "ConfigMap", "old")
    events = []
    async for event in api.watch("v1", "ConfigMap", resource_version=snapshot.resource_version):
        events.append((event.type, event.object["metadata"]["name"]))
        if len(events) == 2:
            break
    assert events == [("ADDED", "new"), ("DELETED", "old")]


async def test_a_watch_ends_when_it_was_asked_to(api):
    await api.create(config_map("a"))
    types = [event.type async for event in api.watch("v1", "ConfigMap", seconds=1)]
    assert types[0] == "ADDED"


async def test_an_unusable_selector_is_refused(api):
    with pytest.raises(ApiError) as refused:
        async for _ in api.watch("v1", "ConfigMap", labels="a=b=c"):
            pass
    assert refused.value.code == 400


async def test_an_informer_resyncs(api):
    await api.create(config_map("a"))
    async with await api.informer("v1", "ConfigMap", resync=0.2) as informer:
        first = [await anext(informer) for _ in range(4)]
        assert [type(change) for change in first] == [Added, Synced, Updated, Updated]
        assert first[2].object == first[2].previous
        await api.create(config_map("b"))
        async for change in informer:
            if isinstance(change, Added):
                break
        assert change.object["metadata"]["name"] == "b"
        await api.delete("v1", "ConfigMap", "a")
        async for change in informer:
            if isinstance(change, Deleted):
                break
        assert set(informer.objects) == {("default", "b")}
    await asyncio.sleep(0)


WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


async def test_a_custom_kind_is_found_once_the_server_has_it(api):
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "size": 1}
    with pytest.raises(ApiError, match='no matches for kind "Widget" in version'):
        await api.create(widget)
    await api.create(WIDGETS)

    async def created() -> bool:
        try:
            await api.create(widget)
        except ApiError as error:
            if error.code != 404:  # not served yet
                raise
            return False
        return True

    await eventually_async(created)
    widget = await api.get("example.com/v1", "Widget", "w")
    widget["status"] = {"ready": True}
    assert (await api.update(widget, subresource="status"))["status"] == {"ready": True}
    assert "Widget" in {kind.kind for kind in await api.kinds()}


async def test_a_workload_is_scaled(api):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await api.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
    scale = await api.scale("apps/v1", "Deployment", "d", 3)
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 3)
    assert (await api.get("apps/v1", "Deployment", "d", subresource="scale"))["spec"]["replicas"] == 3


async def test_a_pod_is_evicted(api):
    await api.create(pod("p"))
    await api.evict("p", grace_seconds=0)
    with pytest.raises(ApiError) as gone:
        await api.get("v1", "Pod", "p")
    assert gone.value.reason is Reason.NOT_FOUND


async def test_a_service_account_has_tokens(api):
    claims = jwt.decode(await api.token("default", audiences=["me"]), options={"verify_signature": False})
    assert (claims["sub"], claims["aud"]) == ("system:serviceaccount:default:default", ["me"])


@pytest.mark.parametrize("what", ["log", "exec", "port_forward"])
async def test_a_pod_without_a_node_refuses_conversations(api, what):
    await api.create(pod("p"))

    async def log() -> None:
        [_ async for _ in api.log("p")]

    async def execute() -> None:
        await api.run("p", ["true"])

    async def port_forward() -> None:
        async with api.port_forward("p", 80):
            pass

    with pytest.raises(ApiError) as refused:
        await {"log": log, "exec": execute, "port_forward": port_forward}[what]()
    assert refused.value.code in (400, 409, 500)
    assert refused.value.message


async def test_other_paths_are_read_raw(api):
    assert b"gitVersion" in await api.raw("/version")
