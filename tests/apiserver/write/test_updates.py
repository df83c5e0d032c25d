"""update: which version, what each door may change, what counts as a change at all."""

import asyncio

import pytest

from tests.apiserver.support import answer_when

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


# --- versions ---------------------------------------------------------------------------------------------------------


async def test_an_update_replaces_the_object_and_moves_its_version(api, config):
    made = await api.made(CONFIGS, config("one", a="1", b="2"))

    reply = await api.put(f"{CONFIGS}/one", {**made, "data": {"a": "3"}})

    assert reply.status == 200
    assert reply.body["data"] == {"a": "3"}
    assert int(reply.version) == api.store.revision > int(made["metadata"]["resourceVersion"])
    assert reply.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert (await api.get(f"{CONFIGS}/one")).raw == reply.raw


async def test_a_stale_version_is_a_conflict(api, config):
    made = await api.made(CONFIGS, config("one", a="1"))
    await api.put(f"{CONFIGS}/one", {**made, "data": {"a": "2"}})

    reply = await api.put(f"{CONFIGS}/one", {**made, "data": {"a": "3"}})

    assert (reply.status, reply.body["reason"]) == (409, "Conflict")
    assert reply.message == f'Operation cannot be fulfilled on configmaps "one": {MODIFIED}'
    assert reply.body["details"] == {"name": "one", "kind": "configmaps"}


async def test_a_version_of_the_future_is_a_conflict_too(api, config):
    made = await api.made(CONFIGS, config("one"))
    made["metadata"]["resourceVersion"] = "999999"

    assert (await api.put(f"{CONFIGS}/one", made)).status == 409


@pytest.mark.parametrize("version", ["", "0"], ids=["none", "zero"])
async def test_an_update_without_a_version_is_unconditional(api, config, version):
    await api.made(CONFIGS, config("one", a="1"))
    given = config("one", a="2")
    given["metadata"]["resourceVersion"] = version

    reply = await api.put(f"{CONFIGS}/one", given)

    assert (reply.status, reply.body["data"]) == (200, {"a": "2"})


async def test_a_version_that_is_not_a_number_is_refused(api, config):
    given = await api.made(CONFIGS, config("one"))
    given["metadata"]["resourceVersion"] = "latest"

    assert (await api.put(f"{CONFIGS}/one", given)).status in (400, 409, 422)


async def test_a_lease_must_name_its_version(api):
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    await api.made(LEASES, lease)

    reply = await api.put(f"{LEASES}/l", lease)

    assert (reply.status, reply.body["reason"]) == (422, "Invalid")
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in reply.message


async def test_a_custom_resource_must_name_its_version(widgets):
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    await widgets.made(WIDGETS, widget)

    reply = await widgets.put(f"{WIDGETS}/w", {**widget, "spec": {"size": 1}})

    assert reply.status == 422
    assert reply.message == (
        'widgets.example.com "w" is invalid: '
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    )


async def test_parallel_updates_of_one_version_have_one_winner(racing, config):
    made = await racing.made(CONFIGS, config("one"))

    replies = await asyncio.gather(
        *(racing.put(f"{CONFIGS}/one", {**made, "data": {"who": str(number)}}) for number in range(20))
    )

    assert sorted(reply.status for reply in replies) == [200] + [409] * 19


async def test_parallel_updates_without_a_version_all_succeed(racing, config):
    await racing.made(CONFIGS, config("one"))

    replies = await asyncio.gather(
        *(racing.put(f"{CONFIGS}/one", config("one", who=str(number))) for number in range(30))
    )

    assert {reply.status for reply in replies} == {200}
    last = max(replies, key=lambda each: int(each.version))
    assert (await racing.get(f"{CONFIGS}/one")).raw == last.raw


# --- no change --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "same",
    [
        pytest.param({}, id="the object itself"),
        pytest.param({"labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": []}, id="empty parts"),
        pytest.param({"labels": None, "annotations": None}, id="nulls"),
        pytest.param({"generation": 9, "selfLink": "/x", "managedFields": [{"manager": "m"}]}, id="ignored parts"),
        pytest.param({"creationTimestamp": "2001-01-01T00:00:00Z"}, id="another creation time"),
        pytest.param({"creationTimestamp": None, "uid": ""}, id="no identity"),
    ],
)
async def test_an_update_without_a_change_keeps_the_version_and_sends_no_event(api, config, same):
    made = await api.made(CONFIGS, config("one", a="1"))
    revision = api.store.revision
    watch = await api.watch(f"{CONFIGS}?resourceVersion={revision}")
    given = {**made, "metadata": {**made["metadata"], **same}}

    reply = await api.put(f"{CONFIGS}/one", given)

    assert reply.body == made
    assert api.store.revision == revision
    assert await watch.is_quiet()


async def test_a_pod_put_back_unchanged_is_not_a_change(api, pod):
    await api.made(PODS, pod(labels={"a": "b"}))
    read = (await api.get(f"{PODS}/web")).body

    reply = await api.put(f"{PODS}/web", read)

    assert reply.body == read
    assert int(reply.version) == api.store.revision


# --- identity ---------------------------------------------------------------------------------------------------------


async def test_a_missing_object_cannot_be_updated(api, config):
    reply = await api.put(f"{CONFIGS}/one", config("one"))

    assert reply.status == 404
    assert reply.message == 'configmaps "one" not found'


async def test_another_uid_is_a_conflict_that_names_both(api, config):
    made = await api.made(CONFIGS, config("one"))
    given = config("one")
    given["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111"

    reply = await api.put(f"{CONFIGS}/one", given)

    assert (reply.status, reply.body["reason"]) == (409, "Conflict")
    assert "UID in precondition: 11111111-1111-1111-1111-111111111111" in reply.message
    assert f"UID in object meta: {made['metadata']['uid']}" in reply.message


async def test_a_patch_to_another_uid_is_invalid(api, pod):
    await api.made(PODS, pod())

    reply = await api.patch(f"{PODS}/web/status", {"metadata": {"uid": "other"}, "status": {"phase": "Running"}})

    assert reply.status == 422
    assert 'metadata.uid: Invalid value: "other": field is immutable' in reply.message


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        pytest.param(
            {"name": "two"}, "the name of the object (two) does not match the name on the URL (one)", id="another name"
        ),
        pytest.param(
            {"name": ""},
            "the name of the object (one based on URL) was undeterminable: name must be provided",
            id="no name",
        ),
        pytest.param(
            {"namespace": "kube-system"},
            "the namespace of the provided object does not match the namespace sent on the request",
            id="another namespace",
        ),
    ],
)
async def test_the_body_must_be_the_object_of_the_url(api, config, metadata, message):
    made = await api.made(CONFIGS, config("one"))

    reply = await api.put(f"{CONFIGS}/one", {**made, "metadata": {**made["metadata"], **metadata}})

    assert (reply.status, reply.message) == (400, message)


async def test_a_deletion_time_cannot_be_set_by_an_update(api, config):
    made = await api.made(CONFIGS, config("one"))
    made["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"

    reply = await api.put(f"{CONFIGS}/one", made)

    assert reply.status == 422
    assert "metadata.deletionTimestamp" in reply.message
    assert "field is immutable" in reply.message


# --- create on update -------------------------------------------------------------------------------------------------


async def test_some_kinds_are_created_by_an_update(api):
    reply = await api.put(f"{LEASES}/l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}})

    assert reply.status == 201
    assert (await api.get(f"{LEASES}/l")).raw == reply.raw


async def test_an_update_that_expects_a_uid_creates_nothing(api):
    lease = {"metadata": {"name": "l", "uid": "11111111-1111-1111-1111-111111111111"}, "spec": {}}

    reply = await api.put(f"{LEASES}/l", lease)

    assert reply.status == 409
    assert (await api.get(f"{LEASES}/l")).status == 404


async def test_a_patch_creates_nothing(api):
    assert (await api.patch(f"{LEASES}/l", {"spec": {}})).status == 404


# --- doors ------------------------------------------------------------------------------------------------------------


async def test_status_is_ignored_by_an_update_of_the_object(api, pod):
    made = await api.made(PODS, pod())

    reply = await api.put(f"{PODS}/web", {**made, "status": {"phase": "Running"}})

    assert reply.body["status"] == made["status"]
    assert reply.version == made["metadata"]["resourceVersion"]


async def test_spec_is_ignored_by_an_update_of_the_status(api, pod):
    made = await api.made(PODS, pod())
    spec = {**made["spec"], "activeDeadlineSeconds": 5}

    reply = await api.put(f"{PODS}/web/status", {**made, "spec": spec, "status": {"phase": "Running"}})

    assert reply.status == 200
    assert reply.body["spec"] == made["spec"]
    assert reply.body["status"]["phase"] == "Running"
    assert reply.body["metadata"]["generation"] == 1


async def test_labels_of_a_built_in_kind_change_through_the_status_subresource(api, pod):
    await api.made(PODS, pod())

    reply = await api.patch(f"{PODS}/web/status", {"metadata": {"labels": {"a": "b"}}})

    assert reply.body["metadata"]["labels"] == {"a": "b"}


async def test_owners_do_not_change_through_the_status_subresource(api, pod):
    await api.made(PODS, pod())
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}

    reply = await api.patch(f"{PODS}/web/status", {"metadata": {"ownerReferences": [owner]}})

    assert "ownerReferences" not in reply.body["metadata"]


async def test_a_custom_resources_status_subresource_changes_only_the_status(widgets):
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}}
    await widgets.made(WIDGETS, {**widget, "status": {"ready": True}})

    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"size": 2}, "status": {"ready": False}}
    reply = await widgets.patch(f"{WIDGETS}/w/status", patch)

    assert reply.body["spec"] == {"size": 1}
    assert reply.body["status"] == {"ready": False}
    assert "labels" not in reply.body["metadata"]
    assert reply.body["metadata"]["generation"] == 1


async def test_a_custom_resource_is_created_without_its_status(widgets):
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "status": {"ready": True}}

    assert "status" not in await widgets.made(WIDGETS, widget)


async def test_the_status_subresource_shows_the_whole_object(api, pod):
    await api.made(PODS, pod())

    assert (await api.get(f"{PODS}/web/status")).raw == (await api.get(f"{PODS}/web")).raw


# --- generation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patch", "generation"),
    [
        pytest.param({"spec": {"replicas": 3}}, 2, id="spec"),
        pytest.param({"spec": {"replicas": 2}}, 1, id="the same spec"),
        pytest.param({"metadata": {"labels": {"a": "b"}}}, 1, id="labels"),
        pytest.param({"metadata": {"annotations": {"a": "b"}}}, 2, id="annotations, which replica sets inherit"),
        pytest.param({"metadata": {"generation": 9}}, 1, id="generation itself"),
    ],
)
async def test_a_deployments_generation_follows_changes_for_its_controller(api, deployment, patch, generation):
    await api.made(DEPLOYMENTS, deployment())

    reply = await api.patch(f"{DEPLOYMENTS}/web", patch)

    assert reply.body["metadata"]["generation"] == generation


async def test_a_status_change_keeps_the_generation(api, deployment):
    await api.made(DEPLOYMENTS, deployment())

    reply = await api.patch(f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 2, "observedGeneration": 1}})

    assert reply.body["status"]["replicas"] == 2
    assert reply.body["metadata"]["generation"] == 1


@pytest.mark.parametrize(("with_status", "generation"), [(True, 1), (False, 2)], ids=["apart", "as part of the object"])
async def test_a_custom_status_counts_unless_it_is_a_subresource(api, definition, with_status, generation):
    await api.made(DEFINITIONS, definition(status=with_status))
    await answer_when(lambda: api.get(WIDGETS), lambda reply: reply.status == 200)
    await api.made(WIDGETS, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}})

    reply = await api.patch(f"{WIDGETS}/w", {"status": {"ready": True}})

    assert reply.body["metadata"]["generation"] == generation
    assert ("status" in reply.body) is not with_status


# --- finalizers -------------------------------------------------------------------------------------------------------


async def _being_deleted(api, config, *finalizers):
    given = config("one")
    given["metadata"]["finalizers"] = list(finalizers)
    await api.made(CONFIGS, given)
    return (await api.delete(f"{CONFIGS}/one")).body


async def test_the_last_finalizer_to_go_takes_the_object_with_it(api, config):
    await _being_deleted(api, config, "example.com/a", "example.com/b")
    watch = await api.watch(f"{CONFIGS}?resourceVersion={api.store.revision}")

    first = await api.patch(f"{CONFIGS}/one", {"metadata": {"finalizers": ["example.com/b"]}})
    assert first.status == 200
    assert (await api.get(f"{CONFIGS}/one")).status == 200
    last = await api.patch(f"{CONFIGS}/one", {"metadata": {"finalizers": None}})

    assert last.status == 200
    assert (await api.get(f"{CONFIGS}/one")).status == 404
    assert [item["type"] for item in await watch.take(2)] == ["MODIFIED", "DELETED"]


async def test_no_finalizer_is_added_to_a_terminating_object(api, config):
    await _being_deleted(api, config, "example.com/a")

    reply = await api.patch(f"{CONFIGS}/one", {"metadata": {"finalizers": ["example.com/a", "example.com/new"]}})

    assert reply.status == 422
    assert reply.message == (
        'ConfigMap "one" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is '
        'being deleted, found new finalizers []string{"example.com/new"}'
    )


async def test_a_deletion_time_cannot_be_taken_back(api, config):
    marked = await _being_deleted(api, config, "example.com/a")

    reply = await api.patch(f"{CONFIGS}/one", {"metadata": {"deletionTimestamp": None}, "data": {"a": "1"}})

    assert reply.body["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    assert reply.body["data"] == {"a": "1"}


async def test_finalizers_of_a_living_object_come_and_go(api, config):
    await api.made(CONFIGS, config("one"))

    await api.patch(f"{CONFIGS}/one", {"metadata": {"finalizers": ["example.com/a"]}})
    reply = await api.patch(f"{CONFIGS}/one", {"metadata": {"finalizers": []}})

    assert "finalizers" not in reply.body["metadata"]
    assert (await api.get(f"{CONFIGS}/one")).status == 200


# --- dry run ----------------------------------------------------------------------------------------------------------


async def test_a_dry_run_shows_the_change_and_stores_nothing(api, deployment):
    made = await api.made(DEPLOYMENTS, deployment())
    revision = api.store.revision
    watch = await api.watch(f"{DEPLOYMENTS}?resourceVersion={revision}")

    reply = await api.put(f"{DEPLOYMENTS}/web?dryRun=All", {**made, "spec": {**made["spec"], "replicas": 9}})

    assert reply.body["spec"]["replicas"] == 9
    assert reply.body["metadata"]["generation"] == 2
    assert (await api.get(f"{DEPLOYMENTS}/web")).body == made
    assert api.store.revision == revision
    assert await watch.is_quiet()


async def test_a_dry_run_of_the_last_finalizers_removal_deletes_nothing(api, config):
    await _being_deleted(api, config, "example.com/a")

    reply = await api.patch(f"{CONFIGS}/one?dryRun=All", {"metadata": {"finalizers": None}})

    assert reply.status == 200
    assert (await api.get(f"{CONFIGS}/one")).body["metadata"]["finalizers"] == ["example.com/a"]
