"""PATCH: three formats, what is refused, and what happens when patches meet."""

import asyncio
import copy

import msgspec
import pytest

from podwire.apiserver.write import patches

CONFIGS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"

WIDGET = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "w"},
    "spec": {"size": 1, "parts": [1]},
}


# --- formats ----------------------------------------------------------------------------------------------------------


async def test_a_merge_patch_sets_and_removes(api, config):
    await api.made(CONFIGS, config("one", a="1", b="2"))

    reply = await api.patch(f"{CONFIGS}/one", {"data": {"a": None, "c": "3"}})

    assert (reply.status, reply.body["data"]) == (200, {"b": "2", "c": "3"})


async def test_a_merge_patch_replaces_lists(api, deployment):
    await api.made(DEPLOYMENTS, deployment())
    template = {"spec": {"containers": [{"name": "other", "image": "nginx:2"}]}}

    reply = await api.patch(f"{DEPLOYMENTS}/web", {"spec": {"template": template}})

    containers = reply.body["spec"]["template"]["spec"]["containers"]
    assert [container["name"] for container in containers] == ["other"]


async def test_a_strategic_patch_merges_lists_by_key(api, deployment):
    await api.made(DEPLOYMENTS, deployment())
    template = {"spec": {"containers": [{"name": "other", "image": "nginx:2"}]}}

    reply = await api.patch(f"{DEPLOYMENTS}/web", {"spec": {"template": template}}, "strategic")

    containers = reply.body["spec"]["template"]["spec"]["containers"]
    assert {container["name"]: container["image"] for container in containers} == {
        "c": "nginx:1.27",
        "other": "nginx:2",
    }


async def test_a_json_patch_tests_and_changes(api, config):
    await api.made(CONFIGS, config("one", a="1"))
    patch = [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "add", "path": "/data/b", "value": "2"}]

    reply = await api.patch(f"{CONFIGS}/one", patch, "json")

    assert (reply.status, reply.body["data"]) == (200, {"a": "1", "b": "2"})


async def test_a_json_patch_with_a_failed_test_changes_nothing(api, config):
    made = await api.made(CONFIGS, config("one", a="1"))
    patch = [{"op": "replace", "path": "/data/a", "value": "9"}, {"op": "test", "path": "/data/a", "value": "2"}]

    reply = await api.patch(f"{CONFIGS}/one", patch, "json")

    assert (reply.status, reply.body["reason"]) == (422, "Invalid")
    assert (await api.get(f"{CONFIGS}/one")).body == made


@pytest.mark.parametrize("kind", ["merge", "json"])
async def test_custom_resources_take_merge_and_json_patches(widgets, kind):
    await widgets.made(WIDGETS, WIDGET)
    patch = {"spec": {"size": 2}} if kind == "merge" else [{"op": "replace", "path": "/spec/size", "value": 2}]

    reply = await widgets.patch(f"{WIDGETS}/w", patch, kind)

    assert reply.body["spec"] == {"size": 2, "parts": [1]}
    assert reply.body["metadata"]["generation"] == 2


async def test_custom_resources_take_no_strategic_patch(widgets):
    await widgets.made(WIDGETS, WIDGET)

    reply = await widgets.patch(f"{WIDGETS}/w", {"spec": {"size": 2}}, "strategic")

    assert (reply.status, reply.body["reason"]) == (415, "UnsupportedMediaType")
    assert "application/json-patch+json" in reply.message
    assert "application/merge-patch+json" in reply.message
    assert "strategic" not in reply.message


async def test_an_unknown_format_is_refused_with_the_known_ones(api, config):
    await api.made(CONFIGS, config("one"))

    reply = await api.call("PATCH", f"{CONFIGS}/one", {"data": {}}, content_type="application/json")

    assert reply.status == 415
    for name in ("json-patch", "merge-patch", "strategic-merge-patch"):
        assert f"application/{name}+json" in reply.message


async def test_a_charset_does_not_hide_the_format(api, config):
    await api.made(CONFIGS, config("one"))
    content_type = "application/merge-patch+json; charset=utf-8"

    reply = await api.call("PATCH", f"{CONFIGS}/one", {"data": {"a": "1"}}, content_type=content_type)

    assert reply.status == 200


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        pytest.param("merge", b"{", 400, id="no JSON"),
        pytest.param("merge", [1], 400, id="a merge patch that is a list"),
        pytest.param("json", {"op": "add"}, 400, id="a json patch that is not a list"),
        pytest.param("json", [{"op": "leap", "path": "/data"}], 422, id="an unknown operation"),
        pytest.param("json", [{"op": "remove", "path": "/data/none"}], 422, id="a path to nothing"),
        pytest.param("merge", {"kind": "Secret"}, 400, id="another kind"),
        pytest.param("merge", {"data": {"a": 1}}, 400, id="a value of the wrong type"),
        pytest.param("merge", {"metadata": {"name": "two"}}, 400, id="another name"),
        pytest.param("merge", {"metadata": {"namespace": "kube-system"}}, 400, id="another namespace"),
        pytest.param("merge", {"data": {"bad key!": "1"}}, 422, id="an invalid object"),
        pytest.param("strategic", {"metadata": {"labels": {"a": "not a label!"}}}, 422, id="an invalid label"),
    ],
)
async def test_a_patch_that_cannot_be_is_refused_and_changes_nothing(api, config, kind, body, status):
    made = await api.made(CONFIGS, config("one", a="1"))

    reply = await api.patch(f"{CONFIGS}/one", body, kind)

    assert reply.status == status, reply.raw
    assert (await api.get(f"{CONFIGS}/one")).body == made


async def test_a_missing_object_cannot_be_patched(api):
    reply = await api.patch(f"{CONFIGS}/one", {"data": {}})

    assert (reply.status, reply.message) == (404, 'configmaps "one" not found')


async def test_a_collection_cannot_be_patched(api):
    assert (await api.patch(CONFIGS, {"data": {}})).status == 405


@pytest.mark.parametrize(("validation", "status"), [("Strict", 400), ("Warn", 200), ("Ignore", 200), ("", 200)])
async def test_unknown_fields_of_a_patch_follow_field_validation(api, config, validation, status):
    await api.made(CONFIGS, config("one"))

    reply = await api.patch(f"{CONFIGS}/one?fieldValidation={validation}", {"data": {"a": "1"}, "bogus": 1})

    assert reply.status == status
    assert bool(reply.warnings) is (validation in ("Warn", ""))


# --- races ------------------------------------------------------------------------------------------------------------


async def test_fifty_parallel_patches_all_survive(racing, config):
    await racing.made(CONFIGS, config("one"))

    replies = await asyncio.gather(
        *(racing.patch(f"{CONFIGS}/one", {"data": {f"key{number}": str(number)}}) for number in range(50))
    )

    assert {reply.status for reply in replies} == {200}
    assert len({reply.version for reply in replies}) == 50
    data = (await racing.get(f"{CONFIGS}/one")).body["data"]
    assert data == {f"key{number}": str(number) for number in range(50)}


async def test_a_json_patch_is_tested_again_after_a_lost_race(racing, config):
    await racing.made(CONFIGS, config("one", owner="nobody"))
    test = {"op": "test", "path": "/data/owner", "value": "nobody"}

    replies = await asyncio.gather(
        *(
            racing.patch(
                f"{CONFIGS}/one", [test, {"op": "replace", "path": "/data/owner", "value": str(number)}], "json"
            )
            for number in range(20)
        )
    )

    assert sorted(reply.status for reply in replies) == [200] + [422] * 19
    winner = next(reply for reply in replies if reply.status == 200)
    assert (await racing.get(f"{CONFIGS}/one")).raw == winner.raw


async def test_a_patch_that_names_a_version_conflicts_when_it_is_late(api, config):
    made = await api.made(CONFIGS, config("one"))
    version = made["metadata"]["resourceVersion"]
    first = await api.patch(f"{CONFIGS}/one", {"metadata": {"resourceVersion": version}, "data": {"a": "1"}})

    reply = await api.patch(f"{CONFIGS}/one", {"metadata": {"resourceVersion": version}, "data": {"a": "2"}})

    assert first.status == 200
    assert (reply.status, reply.body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in reply.message


async def test_parallel_patches_that_name_a_version_have_one_winner(racing, config):
    made = await racing.made(CONFIGS, config("one"))
    guarded = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}

    replies = await asyncio.gather(
        *(racing.patch(f"{CONFIGS}/one", {**guarded, "data": {"who": str(number)}}) for number in range(20))
    )

    assert sorted(reply.status for reply in replies) == [200] + [409] * 19


async def test_a_patch_of_a_concurrently_deleted_object_is_not_found(racing, config):
    await racing.made(CONFIGS, config("one"))

    gone, *patches = await asyncio.gather(
        racing.delete(f"{CONFIGS}/one"),
        *(racing.patch(f"{CONFIGS}/one", {"data": {"who": str(number)}}) for number in range(5)),
    )

    assert gone.status == 200
    assert {patch.status for patch in patches} <= {200, 404}
    assert (await racing.get(f"{CONFIGS}/one")).status == 404


# --- no change and dry run --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        pytest.param("merge", {}, id="empty"),
        pytest.param("merge", {"data": {"a": "1", "none": None}}, id="what is there already"),
        pytest.param("strategic", {"metadata": {"annotations": {}}}, id="an empty map"),
        pytest.param("json", [], id="no operation"),
    ],
)
async def test_a_patch_that_changes_nothing_keeps_the_version(api, config, kind, body):
    made = await api.made(CONFIGS, config("one", a="1"))
    revision = api.store.revision

    reply = await api.patch(f"{CONFIGS}/one", body, kind)

    assert (reply.status, reply.body) == (200, made)
    assert api.store.revision == revision


async def test_a_dry_run_of_a_patch_stores_nothing(api, config):
    made = await api.made(CONFIGS, config("one", a="1"))
    revision = api.store.revision

    reply = await api.patch(f"{CONFIGS}/one?dryRun=All", {"data": {"a": "2"}})

    assert reply.body["data"] == {"a": "2"}
    assert (await api.get(f"{CONFIGS}/one")).body == made
    assert api.store.revision == revision


async def test_force_is_for_apply_only(api, config):
    await api.made(CONFIGS, config("one"))

    reply = await api.patch(f"{CONFIGS}/one?force=true", {"data": {}})

    assert reply.status == 422
    assert "force: Forbidden: may not be specified for non-apply patch" in reply.message


async def test_a_null_that_a_json_patch_puts_where_nothing_was_is_left_out(api, config):
    await api.made(CONFIGS, config("one", a="1"))

    reply = await api.patch(f"{CONFIGS}/one", [{"op": "add", "path": "/immutable", "value": None}], "json")

    assert (reply.status, "immutable" in reply.body, reply.body["data"]) == (200, False, {"a": "1"})


async def test_untouched_fields_of_a_patch_keep_their_order_and_value(api, deployment):
    made = await api.made(DEPLOYMENTS, deployment())

    reply = await api.patch(f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 3}})

    assert list(reply.body) == list(made)
    assert (reply.body["spec"], reply.body["status"]["replicas"]) == (made["spec"], 3)


_MEDIA = {"merge": patches.MERGE_PATCH, "strategic": patches.STRATEGIC, "json": patches.JSON_PATCH}
_TOUCHING = {
    "merge": {"metadata": {"labels": {"a": "2"}}, "status": {"conditions": None, "replicas": 3}},
    "strategic": {
        "metadata": {"uid": "u", "labels": {"a": None}},
        "status": {"conditions": [{"type": "Available", "status": "False"}, {"type": "Progressing", "status": "True"}]},
    },
    "json": [
        {"op": "copy", "from": "/status/conditions/0", "path": "/status/conditions/-"},
        {"op": "replace", "path": "/status/conditions/1/type", "value": "Progressing"},
        {"op": "remove", "path": "/metadata/labels/a"},
        {"op": "add", "path": "/metadata/managedFields/0/manager", "value": "other"},
    ],
}


@pytest.mark.parametrize("kind", _TOUCHING)
async def test_a_patch_leaves_the_object_that_it_is_given_as_it_is(api, kind):
    condition = {"type": "Available", "status": "True"}
    entry = {"manager": "one", "operation": "Update", "fieldsV1": {"f:status": {"f:replicas": {}}}}
    old = {
        "metadata": {"name": "web", "labels": {"a": "1"}, "managedFields": [entry]},
        "spec": {"replicas": 2, "selector": {}, "template": {"metadata": {}, "spec": {"containers": []}}},
        "status": {"replicas": 2, "conditions": [condition]},
    }
    before = copy.deepcopy(old)
    resource = api.assembled.engine.registry.builtin("apps", "deployments")

    _, change = patches.change(msgspec.json.encode(_TOUCHING[kind]), _MEDIA[kind], resource, "Strict")
    new = change(old)

    assert old == before
    assert new["status"] != old["status"]
    assert new["metadata"].get("labels") != old["metadata"]["labels"]
    assert (new["metadata"]["managedFields"] is old["metadata"]["managedFields"]) == (kind != "json")


async def test_managed_fields_in_a_status_patch_are_ignored(api, deployment):
    made = await api.made(DEPLOYMENTS, deployment())

    body = {"metadata": {"managedFields": [{"manager": "liar", "operation": "Update"}]}, "status": {"replicas": 1}}
    reply = await api.patch(f"{DEPLOYMENTS}/web/status", body, headers={"user-agent": "writer/1"})

    first, second = reply.body["metadata"]["managedFields"]
    assert [first] == made["metadata"]["managedFields"]
    assert (second["manager"], second["fieldsV1"]) == ("writer", {"f:status": {"f:replicas": {}}})
