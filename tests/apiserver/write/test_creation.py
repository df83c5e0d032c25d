"""create: what a new object is given, what is dropped, what is refused."""

import asyncio
import itertools
import uuid

import pytest

from podwire.apiserver.write.creation import Uids

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CONTAINER = {"name": "c", "image": "i"}


async def test_a_new_object_gets_an_identity_and_its_first_version(api, config):
    reply = await api.post(CONFIGS, config("one", a="1"))

    metadata = reply.body["metadata"]
    assert reply.status == 201
    assert (reply.body["kind"], reply.body["apiVersion"]) == ("ConfigMap", "v1")
    assert metadata["namespace"] == "default"
    assert metadata["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert len(metadata["uid"]) == 36
    assert metadata["uid"][14] == "4"
    assert int(metadata["resourceVersion"]) == api.store.revision
    assert (await api.get(f"{CONFIGS}/one")).raw == reply.raw


def test_uids_are_random_uuids_of_version_four():
    uids = [Uids().next() for _ in range(2)]
    source = Uids()
    uids += [source.next() for _ in range(3 * Uids.BATCH)]

    assert len(set(uids)) == len(uids)
    for uid in map(uuid.UUID, uids):
        assert (uid.version, uid.variant) == (4, uuid.RFC_4122)


async def test_server_set_fields_are_not_taken_from_the_body(api, config):
    given = config("one")
    given["metadata"] |= {
        "uid": "mine",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 7,
        "generation": 42,
        "selfLink": "/here",
        "managedFields": [{"manager": "me", "operation": "Update"}],
    }

    metadata = (await api.made(CONFIGS, given))["metadata"]

    assert metadata["uid"] != "mine"
    assert metadata["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert {*metadata} == {"name", "namespace", "uid", "creationTimestamp", "resourceVersion"}


async def test_a_body_with_a_resource_version_is_refused(api, config):
    given = config("one")
    given["metadata"]["resourceVersion"] = "7"

    reply = await api.post(CONFIGS, given)

    assert reply.status == 400
    assert reply.message == "resourceVersion should not be set on objects to be created"


async def test_a_taken_name_is_already_exists(api, config):
    await api.made(CONFIGS, config("one"))

    reply = await api.post(CONFIGS, config("one"))

    assert reply.status == 409
    assert reply.body["reason"] == "AlreadyExists"
    assert reply.message == 'configmaps "one" already exists'
    assert reply.body["details"] == {"name": "one", "kind": "configmaps"}


async def test_a_hundred_creations_of_one_name_make_one_object(racing, config):
    replies = await asyncio.gather(*(racing.post(CONFIGS, config("one", who=str(number))) for number in range(100)))

    assert sorted(reply.status for reply in replies) == [201] + [409] * 99
    created = next(reply for reply in replies if reply.status == 201)
    assert (await racing.get(f"{CONFIGS}/one")).raw == created.raw


async def test_a_generated_name_has_five_letters_of_the_safe_alphabet(api):
    made = await api.made(CONFIGS, {"metadata": {"generateName": "web-"}})

    name = made["metadata"]["name"]
    assert name.startswith("web-")
    assert len(name) == 9
    assert set(name[4:]) <= set("bcdfghjklmnpqrstvwxz2456789")
    assert made["metadata"]["generateName"] == "web-"


async def test_a_long_base_is_cut_so_that_the_generated_name_fits(api):
    made = await api.made(CONFIGS, {"metadata": {"generateName": "x" * 60}})

    assert len(made["metadata"]["name"]) == 63


async def test_a_name_takes_precedence_over_generate_name(api):
    made = await api.made(CONFIGS, {"metadata": {"generateName": "web-", "name": "one"}})

    assert made["metadata"]["name"] == "one"


async def test_a_generated_name_that_is_taken_is_drawn_again(serve, config):
    drawn = itertools.chain(["web-aaaaa"] * 7, ["web-bbbbb"])
    api = await serve(generate_name=lambda _base: next(drawn))
    await api.made(CONFIGS, config("web-aaaaa"))

    made = await api.made(CONFIGS, {"metadata": {"generateName": "web-"}})

    assert made["metadata"]["name"] == "web-bbbbb"


async def test_after_eight_collisions_a_generated_name_is_a_conflict(serve, config):
    tried = []
    api = await serve(generate_name=lambda base: tried.append(base) or "web-aaaaa")
    await api.made(CONFIGS, config("web-aaaaa"))

    reply = await api.post(CONFIGS, {"metadata": {"generateName": "web-"}})

    assert (reply.status, reply.body["reason"]) == (409, "AlreadyExists")
    assert len(tried) == 8
    assert reply.message == (
        'configmaps "web-aaaaa" already exists, the server was not able to generate a unique name for the object'
    )


async def test_an_object_without_any_name_is_invalid(api):
    reply = await api.post(CONFIGS, {"metadata": {}})

    assert reply.status == 422
    assert reply.message == ('ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required')


async def test_the_body_may_not_name_another_namespace(api, config):
    given = config("one")
    given["metadata"]["namespace"] = "kube-system"

    reply = await api.post(CONFIGS, given)

    assert reply.status == 400
    assert reply.message == "the namespace of the provided object does not match the namespace sent on the request"


async def test_a_namespace_on_a_cluster_wide_object_is_dropped(api):
    role = {"metadata": {"name": "reader", "namespace": "default"}, "rules": []}

    made = await api.made("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)

    assert "namespace" not in made["metadata"]


async def test_a_namespace_that_is_not_there_is_not_found(api, config):
    reply = await api.post("/api/v1/namespaces/nowhere/configmaps", config())

    assert reply.status == 404
    assert reply.message == 'namespaces "nowhere" not found'


async def test_a_pods_status_is_reset_on_creation(api, pod):
    made = await api.made(PODS, {**pod(), "status": {"phase": "Running", "podIP": "10.0.0.7"}})

    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_a_node_brings_its_status(api):
    node = {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "2"}, "nodeInfo": {"kubeletVersion": "v1.36.0"}}}

    made = await api.made(NODES, node)

    assert made["status"]["capacity"] == {"cpu": "2"}
    assert made["status"]["allocatable"] == {"cpu": "2"}


@pytest.mark.parametrize(
    ("url", "body", "generation"),
    [
        pytest.param(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]}}, 1, id="pod"),
        pytest.param(CONFIGS, {"metadata": {"name": "c"}}, None, id="config map"),
        pytest.param(NODES, {"metadata": {"name": "n"}}, None, id="node"),
        pytest.param(PRIORITIES, {"metadata": {"name": "p"}, "value": 7}, 1, id="priority class"),
    ],
)
async def test_only_kinds_that_count_changes_begin_with_generation_one(api, url, body, generation):
    made = await api.made(url, body)

    assert made["metadata"].get("generation") == generation


async def test_a_dry_run_answers_as_if_and_stores_nothing(api, config):
    revision = api.store.revision
    watch = await api.watch(CONFIGS)

    reply = await api.post(f"{CONFIGS}?dryRun=All", config("one", a="1"))

    assert reply.status == 201
    assert reply.body["data"] == {"a": "1"}
    assert reply.body["metadata"]["uid"]
    assert "resourceVersion" not in reply.body["metadata"]
    assert (await api.get(f"{CONFIGS}/one")).status == 404
    assert api.store.revision == revision
    assert await watch.is_quiet()


async def test_a_dry_run_of_a_taken_name_is_refused_like_the_real_thing(api, config):
    await api.made(CONFIGS, config("one"))

    assert (await api.post(f"{CONFIGS}?dryRun=All", config("one"))).status == 409


async def test_a_dry_run_of_an_invalid_object_is_refused_like_the_real_thing(api, config):
    assert (await api.post(f"{CONFIGS}?dryRun=All", config("No!"))).status == 422


async def test_an_object_that_grows_too_large_is_refused(api, config):
    reply = await api.post(CONFIGS, config("one", a="x" * 1_400_000, b="y" * 200_000))

    assert reply.status in (413, 422)
    assert (await api.get(f"{CONFIGS}/one")).status == 404


async def test_the_creation_of_everything_in_the_cluster_at_once_is_not_allowed(api, config):
    reply = await api.post("/api/v1/configmaps", config())

    assert (reply.status, reply.body["reason"]) == (405, "MethodNotAllowed")
