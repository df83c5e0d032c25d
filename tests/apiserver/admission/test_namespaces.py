"""Nothing is created in a namespace that is not there or on its way out."""

import pytest

NAMESPACES = "/api/v1/namespaces"
CONFIGS = "/api/v1/namespaces/team/configmaps"


@pytest.fixture
async def leaving(api, config):
    """A server whose namespace `team` is being deleted, with one config map left in it."""
    await api.made(NAMESPACES, {"metadata": {"name": "team"}})
    await api.made(CONFIGS, config("left"))
    await api.delete(f"{NAMESPACES}/team")
    return api


async def test_a_terminating_namespace_accepts_no_new_objects(leaving, config):
    reply = await leaving.post(CONFIGS, config("late"))

    assert (reply.status, reply.body["reason"]) == (403, "Forbidden")
    assert reply.message == (
        'configmaps "late" is forbidden: unable to create new content in namespace team because it is being terminated'
    )
    (cause,) = reply.body["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("NamespaceTerminating", "metadata.namespace")


async def test_objects_of_a_terminating_namespace_can_be_changed_and_deleted(leaving):
    assert (await leaving.patch(f"{CONFIGS}/left", {"data": {"a": "1"}})).status == 200
    assert (await leaving.delete(f"{CONFIGS}/left")).status == 200


async def test_a_lease_is_not_made_by_an_update_either(leaving):
    url = "/apis/coordination.k8s.io/v1/namespaces/team/leases/l"

    assert (await leaving.put(url, {"metadata": {"name": "l"}, "spec": {}})).status == 403


async def test_a_namespace_that_is_gone_is_not_found(leaving, config):
    namespace = (await leaving.get(f"{NAMESPACES}/team")).body
    await leaving.put(f"{NAMESPACES}/team/finalize", {**namespace, "spec": {"finalizers": []}})

    reply = await leaving.post(CONFIGS, config("late"))

    assert (reply.status, reply.message) == (404, 'namespaces "team" not found')


async def test_cluster_wide_objects_have_no_namespace_to_wait_for(leaving):
    assert (await leaving.post("/api/v1/nodes", {"metadata": {"name": "n1"}})).status == 201


async def test_a_dry_run_is_refused_like_the_real_thing(leaving, config):
    assert (await leaving.post(f"{CONFIGS}?dryRun=All", config("late"))).status == 403
    assert (await leaving.delete(f"{NAMESPACES}/default?dryRun=All")).status == 403
