"""delete: at once, after a grace period, or when the last finalizer goes; and what the answer says."""

import asyncio

import pytest

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
NAMESPACES = "/api/v1/namespaces"

NOW, IN_30, IN_5 = "2027-01-15T08:00:00Z", "2027-01-15T08:00:30Z", "2027-01-15T08:00:05Z"


# --- at once ----------------------------------------------------------------------------------------------------------


async def test_a_plain_object_is_gone_at_once_and_the_answer_is_a_success(api, config):
    made = await api.made(CONFIGS, config("one"))

    reply = await api.delete(f"{CONFIGS}/one")

    assert reply.status == 200
    assert reply.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "one", "kind": "configmaps", "uid": made["metadata"]["uid"]},
    }
    assert (await api.get(f"{CONFIGS}/one")).status == 404


async def test_the_success_names_the_group(api, deployment):
    await api.made(DEPLOYMENTS, deployment())

    reply = await api.delete(f"{DEPLOYMENTS}/web")

    assert {"name": "web", "group": "apps", "kind": "deployments"}.items() <= reply.body["details"].items()


@pytest.mark.parametrize(
    ("url", "body"),
    [
        pytest.param(
            "/api/v1/namespaces/default/services",
            {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}]}},
            id="service",
        ),
        pytest.param("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "x"}}, id="service account"),
        pytest.param(
            "/apis/resource.k8s.io/v1/deviceclasses", {"metadata": {"name": "x"}, "spec": {}}, id="device class"
        ),
    ],
)
async def test_some_kinds_answer_with_the_object_that_is_gone(api, url, body):
    made = await api.made(url, body)

    reply = await api.delete(f"{url}/x")

    assert reply.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert int(reply.version) > int(made["metadata"]["resourceVersion"])
    assert (await api.get(f"{url}/x")).status == 404


async def test_a_missing_object_cannot_be_deleted(api):
    reply = await api.delete(f"{CONFIGS}/one")

    assert (reply.status, reply.message) == (404, 'configmaps "one" not found')


async def test_many_deletions_of_one_object_have_one_winner(racing, config):
    await racing.made(CONFIGS, config("one"))

    replies = await asyncio.gather(*(racing.delete(f"{CONFIGS}/one") for _ in range(20)))

    assert sorted(reply.status for reply in replies) == [200] + [404] * 19


async def test_a_deletion_that_meets_updates_still_happens(racing, config):
    await racing.made(CONFIGS, config("one"))

    writes = [racing.patch(f"{CONFIGS}/one", {"data": {"who": str(number)}}) for number in range(30)]
    *_, reply = await asyncio.gather(*writes, racing.delete(f"{CONFIGS}/one"))

    assert reply.status == 200
    assert (await racing.get(f"{CONFIGS}/one")).status == 404


# --- preconditions ----------------------------------------------------------------------------------------------------


async def test_a_uid_that_does_not_match_is_a_conflict_that_names_both(api, config):
    made = await api.made(CONFIGS, config("one"))

    reply = await api.delete(f"{CONFIGS}/one", {"preconditions": {"uid": "other"}})

    assert (reply.status, reply.body["reason"]) == (409, "Conflict")
    assert reply.message == (
        'Operation cannot be fulfilled on ConfigMap "one": the UID in the precondition (other) does not match the UID '
        f"in record ({made['metadata']['uid']}). The object might have been deleted and then recreated"
    )
    assert (await api.get(f"{CONFIGS}/one")).status == 200


async def test_a_version_that_does_not_match_is_a_conflict(api, deployment):
    made = await api.made(DEPLOYMENTS, deployment())

    reply = await api.delete(f"{DEPLOYMENTS}/web", {"preconditions": {"resourceVersion": "3"}})

    assert reply.status == 409
    assert reply.message == (
        'Operation cannot be fulfilled on Deployment.apps "web": the ResourceVersion in the precondition (3) does not '
        f"match the ResourceVersion in record ({made['metadata']['resourceVersion']}). "
        "The object might have been modified"
    )


async def test_preconditions_that_hold_let_the_deletion_pass(api, config):
    metadata = (await api.made(CONFIGS, config("one")))["metadata"]
    wanted = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}

    assert (await api.delete(f"{CONFIGS}/one", {"preconditions": wanted})).status == 200


async def test_a_deletion_for_one_uid_never_takes_its_successor(racing, config):
    for _ in range(10):
        first = await racing.made(CONFIGS, config("one"))
        guarded = {"preconditions": {"uid": first["metadata"]["uid"]}}

        async def recreate():
            await racing.delete(f"{CONFIGS}/one")
            return await racing.made(CONFIGS, config("one"))

        second, *_ = await asyncio.gather(recreate(), *(racing.delete(f"{CONFIGS}/one", guarded) for _ in range(5)))

        assert (await racing.get(f"{CONFIGS}/one")).body == second
        await racing.delete(f"{CONFIGS}/one")


# --- pods and their grace ---------------------------------------------------------------------------------------------


async def test_a_pod_that_runs_nowhere_is_gone_at_once(api, pod):
    made = await api.made(PODS, pod())

    reply = await api.delete(f"{PODS}/web")

    assert reply.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert (await api.get(f"{PODS}/web")).status == 404


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_is_gone_at_once(api, pod, phase):
    await api.made(PODS, pod(node="n1"))
    await api.patch(f"{PODS}/web/status", {"status": {"phase": phase}})

    await api.delete(f"{PODS}/web")

    assert (await api.get(f"{PODS}/web")).status == 404


@pytest.mark.parametrize(
    ("options", "grace", "when"),
    [
        pytest.param(None, 30, IN_30, id="its own time"),
        pytest.param({"gracePeriodSeconds": 5}, 5, IN_5, id="the client's time"),
        pytest.param({"gracePeriodSeconds": -7}, 1, "2027-01-15T08:00:01Z", id="a negative time is a second"),
    ],
)
async def test_a_scheduled_pod_is_given_time(api, pod, options, grace, when):
    await api.made(PODS, pod(node="n1"))

    reply = await api.delete(f"{PODS}/web", options)

    metadata = reply.body["metadata"]
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == (when, grace)
    assert metadata["generation"] == 2
    assert (await api.get(f"{PODS}/web")).raw == reply.raw


@pytest.mark.parametrize("options", [{"gracePeriodSeconds": 0}, None], ids=["asked for", "the pod's own wish"])
async def test_no_grace_is_gone_at_once(api, pod, options):
    await api.made(PODS, pod(node="n1", terminationGracePeriodSeconds=30 if options else 0))

    await api.delete(f"{PODS}/web", options)

    assert (await api.get(f"{PODS}/web")).status == 404


async def test_a_second_deletion_may_shorten_the_time(api, pod):
    await api.made(PODS, pod(node="n1"))
    await api.delete(f"{PODS}/web")
    api.clock.move(2)

    metadata = (await api.delete(f"{PODS}/web", {"gracePeriodSeconds": 5})).body["metadata"]

    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == (IN_5, 5)
    assert metadata["generation"] == 2


async def test_a_shortened_time_never_lies_in_the_past(api, pod):
    await api.made(PODS, pod(node="n1"))
    await api.delete(f"{PODS}/web")
    api.clock.move(20)

    metadata = (await api.delete(f"{PODS}/web", {"gracePeriodSeconds": 5})).body["metadata"]

    assert metadata["deletionTimestamp"] == "2027-01-15T08:00:20Z"
    assert metadata["deletionGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    "again",
    [
        pytest.param({"gracePeriodSeconds": 60}, id="more time"),
        pytest.param({"gracePeriodSeconds": 10}, id="the same time"),
        pytest.param(None, id="no time, where the pod's own is shorter"),
        pytest.param({"propagationPolicy": "Foreground"}, id="another policy"),
    ],
)
async def test_a_second_deletion_changes_nothing_more(api, pod, again):
    await api.made(PODS, pod(node="n1", terminationGracePeriodSeconds=3))
    first = await api.delete(f"{PODS}/web", {"gracePeriodSeconds": 10})
    revision = api.store.revision

    reply = await api.delete(f"{PODS}/web", again)

    assert reply.body == first.body
    assert api.store.revision == revision


async def test_the_kubelets_final_deletion_takes_the_pod(api, pod):
    made = await api.made(PODS, pod(node="n1"))
    await api.delete(f"{PODS}/web")

    final = {"gracePeriodSeconds": 0, "preconditions": {"uid": made["metadata"]["uid"]}}
    assert (await api.delete(f"{PODS}/web", final)).status == 200

    assert (await api.get(f"{PODS}/web")).status == 404


async def test_a_finished_grace_leaves_a_pod_to_its_finalizers(api, pod):
    given = pod(node="n1")
    given["metadata"]["finalizers"] = ["example.com/a"]
    await api.made(PODS, given)
    await api.delete(f"{PODS}/web")

    reply = await api.delete(f"{PODS}/web", {"gracePeriodSeconds": 0})

    assert reply.body["metadata"]["deletionGracePeriodSeconds"] == 0
    await api.patch(f"{PODS}/web", {"metadata": {"finalizers": None}})
    assert (await api.get(f"{PODS}/web")).status == 404


async def test_without_finalizers_but_within_its_grace_a_pod_stays(api, pod):
    given = pod(node="n1")
    given["metadata"]["finalizers"] = ["example.com/a"]
    await api.made(PODS, given)
    await api.delete(f"{PODS}/web")

    await api.patch(f"{PODS}/web", {"metadata": {"finalizers": None}})

    assert (await api.get(f"{PODS}/web")).status == 200


# --- finalizers and propagation ---------------------------------------------------------------------------------------


async def test_an_object_with_finalizers_is_marked_and_shown(api, deployment):
    given = deployment()
    given["metadata"]["finalizers"] = ["example.com/a"]
    await api.made(DEPLOYMENTS, given)

    metadata = (await api.delete(f"{DEPLOYMENTS}/web")).body["metadata"]

    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == (NOW, 0)
    assert metadata["generation"] == 2
    api.clock.move(9)
    revision = api.store.revision
    again = (await api.delete(f"{DEPLOYMENTS}/web")).body["metadata"]
    assert again == metadata
    assert api.store.revision == revision


@pytest.mark.parametrize(
    ("options", "finalizers"),
    [
        pytest.param({"propagationPolicy": "Foreground"}, ["foregroundDeletion"], id="foreground"),
        pytest.param({"propagationPolicy": "Orphan"}, ["orphan"], id="orphan"),
        pytest.param({"orphanDependents": True}, ["orphan"], id="the old word for orphan"),
        pytest.param({"propagationPolicy": "Background"}, None, id="background"),
        pytest.param({"orphanDependents": False}, None, id="the old word for background"),
        pytest.param({}, None, id="nothing said"),
    ],
)
async def test_the_propagation_policy_becomes_a_finalizer(api, deployment, options, finalizers):
    await api.made(DEPLOYMENTS, deployment())

    await api.delete(f"{DEPLOYMENTS}/web", options)

    reply = await api.get(f"{DEPLOYMENTS}/web")
    assert reply.body.get("metadata", {}).get("finalizers") == finalizers
    assert (reply.status == 404) is (finalizers is None)


@pytest.mark.parametrize(
    ("options", "finalizers"),
    [
        pytest.param({"propagationPolicy": "Orphan"}, ["example.com/a", "orphan"], id="orphan after foreground"),
        pytest.param({"propagationPolicy": "Background"}, ["example.com/a"], id="background after foreground"),
        pytest.param({}, ["example.com/a", "foregroundDeletion"], id="nothing said"),
    ],
)
async def test_the_last_policy_counts(api, deployment, options, finalizers):
    given = deployment()
    given["metadata"]["finalizers"] = ["example.com/a"]
    await api.made(DEPLOYMENTS, given)
    await api.delete(f"{DEPLOYMENTS}/web", {"propagationPolicy": "Foreground"})

    reply = await api.delete(f"{DEPLOYMENTS}/web", options)

    assert reply.body["metadata"]["finalizers"] == finalizers


async def test_options_may_come_in_the_query(api, deployment, pod):
    await api.made(DEPLOYMENTS, deployment())
    await api.made(PODS, pod(node="n1"))

    foreground = await api.delete(f"{DEPLOYMENTS}/web?propagationPolicy=Foreground")
    graceful = await api.delete(f"{PODS}/web?gracePeriodSeconds=5")

    assert foreground.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert graceful.body["metadata"]["deletionGracePeriodSeconds"] == 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param({"propagationPolicy": "Sideways"}, "propagationPolicy: Unsupported value", id="unknown policy"),
        pytest.param(
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            "orphanDependents and deletionPropagation cannot be both set",
            id="both words",
        ),
        pytest.param({"dryRun": ["Some"]}, "dryRun: Unsupported value", id="dry run of a kind that is not"),
    ],
)
async def test_options_that_make_no_sense_are_invalid(api, config, options, said):
    await api.made(CONFIGS, config("one"))

    reply = await api.delete(f"{CONFIGS}/one", options)

    assert reply.status == 422
    assert reply.message.startswith('DeleteOptions.meta.k8s.io "" is invalid: ')
    assert said in reply.message
    assert (await api.get(f"{CONFIGS}/one")).status == 200


# --- namespaces -------------------------------------------------------------------------------------------------------


async def test_a_namespace_is_marked_as_terminating_and_stays_until_it_is_finalized(api):
    await api.made(NAMESPACES, {"metadata": {"name": "team"}})

    reply = await api.delete(f"{NAMESPACES}/team")

    assert reply.status == 200
    assert reply.body["status"]["phase"] == "Terminating"
    assert reply.body["metadata"]["deletionTimestamp"] == NOW
    assert (await api.delete(f"{NAMESPACES}/team")).status == 200

    emptied = {**reply.body, "spec": {"finalizers": []}}
    assert (await api.put(f"{NAMESPACES}/team/finalize", emptied)).status == 200
    assert (await api.get(f"{NAMESPACES}/team")).status == 404


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_the_namespaces_that_everything_needs_are_not_deleted(api, name):
    reply = await api.delete(f"{NAMESPACES}/{name}")

    assert reply.status == 403
    assert reply.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


# --- collections ------------------------------------------------------------------------------------------------------


async def test_a_collection_is_deleted_and_listed(api, config):
    for name in ("a", "b", "c"):
        await api.made(CONFIGS, config(name))
    await api.made("/api/v1/namespaces/kube-system/configmaps", config("a"))

    reply = await api.delete(CONFIGS)

    assert reply.status == 200
    assert reply.body["kind"] == "ConfigMapList"
    assert reply.names == ["a", "b", "c"]
    assert (await api.get(CONFIGS)).names == []
    assert (await api.get("/api/v1/namespaces/kube-system/configmaps/a")).status == 200


async def test_selectors_choose_the_deleted_objects(api, pod):
    await api.made(PODS, pod("a", labels={"app": "x"}))
    await api.made(PODS, pod("b", labels={"app": "x"}, node="n1"))
    await api.made(PODS, pod("c", labels={"app": "y"}))

    reply = await api.delete(f"{PODS}?labelSelector=app%3Dx&fieldSelector=spec.nodeName%3Dn1")

    assert reply.names == ["b"]
    assert (await api.get(PODS)).names == ["a", "b", "c"]
    assert "deletionTimestamp" in (await api.get(f"{PODS}/b")).body["metadata"]


async def test_a_limit_deletes_one_page_and_returns_a_continue_token(api, config):
    for name in ("a", "b", "c"):
        await api.made(CONFIGS, config(name))

    reply = await api.delete(f"{CONFIGS}?limit=2")

    assert reply.names == ["a", "b"]
    assert reply.body["metadata"]["continue"]
    assert reply.body["metadata"]["remainingItemCount"] == 1
    assert (await api.get(CONFIGS)).names == ["c"]
    rest = await api.delete(f"{CONFIGS}?limit=2&continue={reply.body['metadata']['continue']}")
    assert rest.names == ["c"]
    assert "continue" not in rest.body["metadata"]


async def test_options_hold_for_every_object_of_a_collection(api, deployment):
    for name in ("a", "b"):
        await api.made(DEPLOYMENTS, deployment(name))

    await api.delete(DEPLOYMENTS, {"propagationPolicy": "Foreground"})

    listed = (await api.get(DEPLOYMENTS)).body["items"]
    assert [item["metadata"]["finalizers"] for item in listed] == [["foregroundDeletion"]] * 2


async def test_namespaces_are_not_deleted_as_a_collection(api):
    assert (await api.delete(NAMESPACES)).status == 405


async def test_nothing_is_deleted_in_all_namespaces_at_once(api):
    assert (await api.delete("/api/v1/configmaps")).status == 405


# --- dry run ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["query", "body"])
async def test_a_dry_run_of_a_deletion_deletes_nothing(api, pod, config, how):
    await api.made(CONFIGS, config("one"))
    await api.made(PODS, pod(node="n1"))
    revision = api.store.revision
    watch = await api.watch(f"{PODS}?resourceVersion={revision}")
    query, body = ("?dryRun=All", None) if how == "query" else ("", {"dryRun": ["All"]})

    plain = await api.delete(f"{CONFIGS}/one{query}", body)
    graceful = await api.delete(f"{PODS}/web{query}", body)
    collection = await api.delete(f"{CONFIGS}{query}", body)

    assert plain.body["status"] == "Success"
    assert graceful.body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert collection.names == ["one"]
    assert api.store.revision == revision
    assert await watch.is_quiet()


UNSAFE = "ignoreStoreReadErrorWithClusterBreakingPotential"


@pytest.mark.parametrize("body", [True, False], ids=["in the body", "in the query"])
@pytest.mark.parametrize(
    ("url", "more", "expected"),
    [
        pytest.param(
            f"{CONFIGS}/one",
            {},
            "is exclusively used to delete corrupt object(s), try again by removing this option",
            id="one object",
        ),
        pytest.param(
            CONFIGS,
            {},
            "is not allowed with DELETECOLLECTION, try again after removing the option",
            id="all objects",
        ),
        pytest.param(
            f"{CONFIGS}/one",
            {"gracePeriodSeconds": 3},
            "cannot be set together with .gracePeriodSeconds",
            id="with another option",
        ),
    ],
)
async def test_a_deletion_that_ignores_read_errors_is_refused_by_name(api, config, url, more, expected, body):
    await api.made(CONFIGS, config())
    options = {UNSAFE: True, **more}
    query = "&".join(f"{name}={str(value).lower()}" for name, value in options.items())

    reply = await (api.delete(url, options) if body else api.delete(f"{url}?{query}"))

    assert (reply.status, reply.body["reason"]) == (422, "Invalid")
    assert f"{UNSAFE}: Invalid value: true: {expected}" in reply.message
    assert (await api.get(f"{CONFIGS}/one")).status == 200


async def test_a_deletion_that_does_not_ignore_read_errors_is_a_usual_one(api, config):
    await api.made(CONFIGS, config())

    assert (await api.delete(f"{CONFIGS}/one?{UNSAFE}=false")).status == 200
