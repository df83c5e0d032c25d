"""Nodes that a pod selects."""

import pytest

from podwire.objects import nodes, pods
from podwire.objects.node_affinity import wants

NODE = nodes.read({"metadata": {"name": "n1", "labels": {"disk": "ssd", "cores": "8", "gpu": ""}}})


def spec(selector=None, terms=None):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    affinity = None if terms is None else {"nodeAffinity": required}
    given = {"nodeSelector": selector or {}, "affinity": affinity}
    return pods.read({"metadata": {"name": "web"}, "spec": given}).spec


def labels(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        pytest.param(spec(), True, id="any"),
        pytest.param(spec({"disk": "ssd"}), True, id="a label"),
        pytest.param(spec({"disk": "ssd", "zone": "a"}), False, id="a label too many"),
        pytest.param(spec(terms=[labels("disk", "In", "hdd", "ssd")]), True, id="one of several values"),
        pytest.param(spec(terms=[labels("disk", "NotIn", "ssd")]), False, id="not this value"),
        pytest.param(spec(terms=[labels("zone", "NotIn", "a")]), True, id="not this value of a label that is missing"),
        pytest.param(spec(terms=[labels("gpu", "Exists")]), True, id="a label of whatever value"),
        pytest.param(spec(terms=[labels("gpu", "DoesNotExist")]), False, id="no such label"),
        pytest.param(spec(terms=[labels("cores", "Gt", "4")]), True, id="more than"),
        pytest.param(spec(terms=[labels("cores", "Lt", "8")]), False, id="less than"),
        pytest.param(spec(terms=[labels("disk", "In", "hdd"), labels("gpu", "Exists")]), True, id="one of two terms"),
        pytest.param(spec({"disk": "hdd"}, [labels("gpu", "Exists")]), False, id="a term, but not the label"),
        pytest.param(spec(terms=[{}]), False, id="a term without conditions is met by none"),
        pytest.param(spec(terms=[]), False, id="no terms are met by none"),
        pytest.param(
            spec(terms=[{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]),
            False,
            id="another node",
        ),
        pytest.param(
            spec(
                terms=[
                    {**labels("gpu", "Exists"), "matchFields": labels("metadata.name", "In", "n1")["matchExpressions"]}
                ]
            ),
            True,
            id="labels and name",
        ),
    ],
)
def test_a_node_is_wanted_or_not(asked, wanted):
    assert wants(asked, NODE) is wanted
