"""binding: a pod is given its node, once."""

import asyncio

import pytest

PODS = "/api/v1/namespaces/default/pods"
BINDING = f"{PODS}/web/binding"


def to(node="n1", **metadata):
    return {"metadata": metadata, "target": {"kind": "Node", "name": node}}


async def test_a_bound_pod_is_on_its_node_and_scheduled(api, pod):
    await api.made(PODS, pod())

    reply = await api.post(BINDING, to("n1"))

    assert reply.status == 201
    assert reply.body == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    bound = (await api.get(f"{PODS}/web")).body
    assert bound["spec"]["nodeName"] == "n1"
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert condition["lastTransitionTime"] == "2027-01-15T08:00:00Z"
    assert bound["metadata"]["generation"] == 1


async def test_a_pod_is_bound_by_the_collection_of_bindings_too(api, pod):
    await api.made(PODS, pod())

    reply = await api.post("/api/v1/namespaces/default/bindings", to("n1", name="web"))

    assert reply.status == 201
    assert (await api.get(f"{PODS}/web")).body["spec"]["nodeName"] == "n1"


async def test_a_second_binding_is_a_conflict(api, pod):
    await api.made(PODS, pod())
    await api.post(BINDING, to("n1"))

    reply = await api.post(BINDING, to("n2"))

    assert (reply.status, reply.body["reason"]) == (409, "Conflict")
    assert reply.message == (
        'Operation cannot be fulfilled on pods/binding "web": pod web is already assigned to node "n1"'
    )


async def test_of_racing_schedulers_one_wins(racing, pod):
    await racing.made(PODS, pod())

    replies = await asyncio.gather(*(racing.post(BINDING, to(f"n{number}")) for number in range(10)))

    assert sorted(reply.status for reply in replies) == [201] + [409] * 9
    winner = next(index for index, each in enumerate(replies) if each.status == 201)
    assert (await racing.get(f"{PODS}/web")).body["spec"]["nodeName"] == f"n{winner}"


async def test_annotations_and_labels_of_the_binding_become_the_pods(api, pod):
    await api.made(PODS, pod(labels={"app": "x"}))

    await api.post(BINDING, to("n1", annotations={"example.com/why": "space"}, labels={"zone": "a"}))

    metadata = (await api.get(f"{PODS}/web")).body["metadata"]
    assert metadata["annotations"] == {"example.com/why": "space"}
    assert metadata["labels"] == {"app": "x", "zone": "a"}


async def test_a_nomination_has_served_its_purpose(api, pod):
    await api.made(PODS, pod())
    await api.patch(f"{PODS}/web/status", {"status": {"nominatedNodeName": "n1"}})

    await api.post(BINDING, to("n1"))

    assert "nominatedNodeName" not in (await api.get(f"{PODS}/web")).body["status"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({"uid": "other"}, "UID in precondition: other", id="uid"),
        pytest.param({"resourceVersion": "3"}, "ResourceVersion in precondition: 3", id="version"),
    ],
)
async def test_a_binding_of_another_pod_is_a_conflict(api, pod, given, said):
    await api.made(PODS, pod())

    reply = await api.post(BINDING, to("n1", **given))

    assert reply.status == 409
    assert said in reply.message


async def test_a_pod_with_gates_is_not_bound(api, pod):
    await api.made(PODS, pod(schedulingGates=[{"name": "example.com/wait"}]))

    reply = await api.post(BINDING, to())

    assert reply.status == 409
    assert "non-empty .spec.schedulingGates" in reply.message


async def test_a_terminating_pod_is_not_bound(api, pod):
    given = pod()
    given["metadata"]["finalizers"] = ["example.com/a"]
    await api.made(PODS, given)
    await api.delete(f"{PODS}/web")

    reply = await api.post(BINDING, to())

    assert reply.status == 409
    assert "is being deleted, cannot be assigned to a host" in reply.message


async def test_no_pod_is_not_found(api):
    assert (await api.post(BINDING, to())).status == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param({"target": {}}, 422, id="no node"),
        pytest.param({"target": {"kind": "Pod", "name": "n1"}}, 422, id="another kind"),
        pytest.param({"metadata": {"name": "other"}, "target": {"name": "n1"}}, 400, id="another pod than the URL's"),
    ],
)
async def test_a_binding_that_cannot_be_is_refused(api, pod, body, status):
    await api.made(PODS, pod())

    assert (await api.post(BINDING, body)).status == status
    assert "nodeName" not in (await api.get(f"{PODS}/web")).body["spec"]


async def test_a_dry_run_binds_nothing(api, pod):
    made = await api.made(PODS, pod())

    assert (await api.post(f"{BINDING}?dryRun=All", to())).status == 201

    assert (await api.get(f"{PODS}/web")).body == made
