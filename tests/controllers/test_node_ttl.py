"""The annotation of nodes by the size of the cluster."""

import pytest

from podwire.controllers import node_ttl
from podwire.controllers.kinds import NODES
from podwire.controllers.node_ttl import ANNOTATION, STEPS, Step, has_ttl, next_step
from tests.eventually import eventually_async


@pytest.mark.parametrize(
    ("step", "nodes", "seconds"),
    [
        (0, 0, 0),
        (0, 100, 0),
        (0, 101, 15),
        (1, 90, 15),
        (1, 89, 0),
        (1, 500, 15),
        (1, 501, 30),
        (2, 449, 15),
        (2, 1001, 60),
        (3, 899, 30),
        (3, 2001, 300),
        (4, 1799, 60),
        (0, 5000, 300),
        (4, 1, 0),
    ],
)
def test_the_time_follows_the_number_of_nodes_with_some_hysteresis(step, nodes, seconds):
    assert STEPS[next_step(step, nodes)].seconds == seconds


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [({}, False), ({ANNOTATION: "15"}, True), ({ANNOTATION: "0"}, False), ({ANNOTATION: "soon"}, False)],
)
def test_an_annotation_that_is_not_a_number_counts_as_missing(annotations, expected):
    assert has_ttl({"metadata": {"annotations": annotations}}, 15) == expected


def node(name):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


async def annotated(cluster, **expected):
    async def look():
        items = (await cluster.api.list(NODES)).items
        found = {item["metadata"]["name"]: item["metadata"].get("annotations", {}).get(ANNOTATION) for item in items}
        assert found == expected, found
        return True

    await eventually_async(look)


async def test_nodes_are_annotated_and_all_of_them_when_the_cluster_grows_and_shrinks(cluster, monkeypatch):
    monkeypatch.setattr(node_ttl, "STEPS", (Step(0, 2, 0), Step(2, 9, 15)))
    await cluster.api.create(node("a"))
    await cluster.api.create(node("b"))
    await annotated(cluster, a="0", b="0")
    await cluster.api.patch(NODES, "a", {"metadata": {"annotations": {ANNOTATION: "soon"}}})
    await annotated(cluster, a="0", b="0")
    await cluster.api.create(node("c"))
    await annotated(cluster, a="15", b="15", c="15")
    await cluster.api.delete(NODES, "c")
    await annotated(cluster, a="15", b="15")
    await cluster.api.delete(NODES, "b")
    await annotated(cluster, a="0")
