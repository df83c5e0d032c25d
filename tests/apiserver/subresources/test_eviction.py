"""eviction: a deletion that asks the pod's disruption budget first."""

import asyncio

import pytest

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EVICTION = f"{PODS}/web/eviction"
EVICT = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"}}


@pytest.fixture
def running(api, pod):
    """Makes pods that run, ready or not."""

    async def make(name="web", *, ready=True, phase="Running"):
        await api.made(PODS, pod(name, node="n1", labels={"app": "x"}))
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        await api.patch(f"{PODS}/{name}/status", {"status": {"phase": phase, "conditions": [condition]}})

    return make


@pytest.fixture
def budget(api):
    """Makes a budget for the pods of app x, with a status as its controller would write it."""

    async def make(allowed, name="b", policy="", **status):
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
        if policy:
            spec["unhealthyPodEvictionPolicy"] = policy
        await api.made(BUDGETS, {"metadata": {"name": name}, "spec": spec})
        known = {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 2}
        await api.patch(f"{BUDGETS}/{name}/status", {"status": {**known, "disruptionsAllowed": allowed, **status}})

    return make


async def left(api, name="b"):
    return (await api.get(f"{BUDGETS}/{name}")).body["status"]["disruptionsAllowed"]


async def test_without_a_budget_an_eviction_is_a_graceful_deletion(api, running):
    await running()

    reply = await api.post(EVICTION, EVICT)

    assert reply.status == 201
    assert reply.body["status"] == "Success"
    pod = (await api.get(f"{PODS}/web")).body
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    condition = pod["status"]["conditions"][-1]
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")


async def test_a_budget_that_allows_it_is_spent(api, running, budget):
    await running()
    await budget(1)

    assert (await api.post(EVICTION, EVICT)).status == 201

    status = (await api.get(f"{BUDGETS}/b")).body["status"]
    assert status["disruptionsAllowed"] == 0
    assert status["disruptedPods"] == {"web": "2027-01-15T08:00:00Z"}


async def test_a_budget_that_is_spent_stops_the_eviction(api, running, budget):
    await running()
    await budget(0)

    reply = await api.post(EVICTION, EVICT)

    assert (reply.status, reply.body["reason"]) == (429, "TooManyRequests")
    assert reply.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert reply.body["details"]["causes"] == [
        {"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods and has 1 currently"}
    ]
    assert "deletionTimestamp" not in (await api.get(f"{PODS}/web")).body["metadata"]


async def test_a_budget_without_status_blocks_an_eviction_for_a_while(api, running, budget):
    await running()
    await budget(5, observedGeneration=0)

    reply = await api.post(EVICTION, EVICT)

    assert reply.status == 429
    assert "is still being processed by the server" in reply.body["details"]["causes"][0]["message"]
    assert reply.headers["retry-after"] == "10"


async def test_of_racing_evictions_only_as_many_as_allowed_get_through(api, running, budget):
    for name in ("web", "two", "three", "four"):
        await running(name)
    await budget(2)

    replies = await asyncio.gather(
        *(api.post(f"{PODS}/{name}/eviction", {"metadata": {"name": name}}) for name in ("web", "two", "three", "four"))
    )

    assert sorted(reply.status for reply in replies) == [201, 201, 429, 429]
    assert await left(api) == 0


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_a_pod_that_does_not_run_costs_nothing(api, running, budget, phase):
    await running(phase=phase)
    await budget(0)

    assert (await api.post(EVICTION, EVICT)).status == 201
    assert await left(api) == 0


async def test_a_pod_that_goes_anyway_costs_nothing(api, running, budget):
    await running()
    await budget(0)
    await api.delete(f"{PODS}/web")

    assert (await api.post(EVICTION, EVICT)).status == 201


@pytest.mark.parametrize(
    ("policy", "healthy", "status"),
    [
        pytest.param("", 1, 201, id="enough are healthy"),
        pytest.param("IfHealthyBudget", 0, 429, id="too few are healthy"),
        pytest.param("AlwaysAllow", 0, 201, id="always"),
    ],
)
async def test_a_pod_that_is_not_ready_goes_by_the_budgets_policy(api, running, budget, policy, healthy, status):
    await running(ready=False)
    await budget(0, policy=policy, currentHealthy=healthy)

    assert (await api.post(EVICTION, EVICT)).status == status
    assert await left(api) == 0


async def test_two_budgets_for_one_pod_are_one_too_many(api, running, budget):
    await running()
    await budget(1, "a")
    await budget(1, "b")

    reply = await api.post(EVICTION, EVICT)

    assert reply.status == 500
    assert "more than one PodDisruptionBudget" in reply.message
    assert (await left(api, "a"), await left(api, "b")) == (1, 1)


async def test_a_budget_for_other_pods_does_not_count(api, running):
    await running()
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "other"}}}
    await api.made(BUDGETS, {"metadata": {"name": "b"}, "spec": spec})

    assert (await api.post(EVICTION, EVICT)).status == 201


async def test_a_budget_without_a_selector_is_for_no_pod(api, running):
    await running()
    await api.made(BUDGETS, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1}})

    assert (await api.post(EVICTION, EVICT)).status == 201


async def test_the_deletions_options_hold(api, running):
    await running()

    refused = await api.post(EVICTION, {**EVICT, "deleteOptions": {"preconditions": {"uid": "other"}}})
    short = await api.post(EVICTION, {**EVICT, "deleteOptions": {"gracePeriodSeconds": 3}})

    assert refused.status == 409
    assert short.status == 201
    assert (await api.get(f"{PODS}/web")).body["metadata"]["deletionGracePeriodSeconds"] == 3


async def test_a_version_that_matches_is_still_right_after_the_condition_was_written(api, running):
    await running()
    version = (await api.get(f"{PODS}/web")).version
    guarded = {**EVICT, "deleteOptions": {"preconditions": {"resourceVersion": version}}}

    assert (await api.post(EVICTION, guarded)).status == 201


async def test_a_refused_deletion_spends_nothing(api, running, budget):
    await running()
    await budget(1)

    await api.post(EVICTION, {**EVICT, "deleteOptions": {"preconditions": {"uid": "other"}}})

    assert await left(api) == 1


@pytest.mark.parametrize("how", ["query", "body"])
async def test_a_dry_run_evicts_and_spends_nothing(api, running, budget, how):
    await running()
    await budget(1)
    revision = api.store.revision
    body = {**EVICT, "deleteOptions": {"dryRun": ["All"]}} if how == "body" else EVICT

    reply = await api.post(f"{EVICTION}{'?dryRun=All' if how == 'query' else ''}", body)

    assert reply.status == 201
    assert api.store.revision == revision


async def test_the_name_must_be_the_urls(api, running):
    await running()

    reply = await api.post(EVICTION, {"metadata": {"name": "other"}})

    assert (reply.status, reply.message) == (400, "name in URL does not match name in Eviction object")


async def test_no_pod_is_not_found(api):
    assert (await api.post(EVICTION, EVICT)).status == 404
