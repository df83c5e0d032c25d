"""Pods get the zone and region of their node."""

import pytest

from tests.apiserver.support import PODS

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


@pytest.fixture
async def node(api):
    labels = {ZONE: "a", REGION: "north", "disk": "fast"}
    return await api.made("/api/v1/nodes", {"metadata": {"name": "n1", "labels": labels}})


async def bind(api, pod, node, **metadata):
    binding = {"metadata": {"name": pod, **metadata}, "target": {"kind": "Node", "name": node}}
    reply = await api.post(f"{PODS}/{pod}/binding", binding)
    assert reply.status == 201, reply.raw
    return (await api.get(f"{PODS}/{pod}")).body["metadata"].get("labels") or {}


async def test_a_bound_pod_has_the_labels_of_its_node(api, pod, node):
    await api.made(PODS, pod(labels={"app": "web", ZONE: "wrong"}))
    assert await bind(api, "web", "n1", labels={"by": "scheduler"}) == {
        "app": "web",
        "by": "scheduler",
        ZONE: "a",
        REGION: "north",
    }


async def test_a_pod_with_a_node_has_them_from_its_creation(api, pod, node):
    made = await api.made(PODS, pod(node="n1", labels={"app": "web"}))
    assert made["metadata"]["labels"] == {"app": "web", ZONE: "a", REGION: "north"}


async def test_a_node_without_such_labels_or_that_does_not_exist_adds_none(api, pod):
    await api.made("/api/v1/nodes", {"metadata": {"name": "bare"}})
    await api.made(PODS, pod(labels={"app": "web"}))
    assert await bind(api, "web", "bare") == {"app": "web"}
    await api.made(PODS, pod("other", labels={"app": "web"}))
    assert await bind(api, "other", "none") == {"app": "web"}
