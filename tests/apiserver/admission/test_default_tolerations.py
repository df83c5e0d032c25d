"""DefaultTolerationSeconds: how long a pod stays on a failing node."""

import pytest

PODS = "/api/v1/namespaces/default/pods"
FAILURE_TAINTS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


def seconds(made):
    return {
        toleration["key"]: toleration.get("tolerationSeconds")
        for toleration in made["spec"]["tolerations"]
        if toleration.get("key") in FAILURE_TAINTS
    }


async def test_a_pod_may_stay_five_minutes_on_a_failing_node(api, pod):
    made = await api.made(PODS, pod())

    assert seconds(made) == dict.fromkeys(FAILURE_TAINTS, 300)
    assert {(toleration["operator"], toleration["effect"]) for toleration in made["spec"]["tolerations"]} == {
        ("Exists", "NoExecute")
    }


@pytest.mark.parametrize(
    ("toleration", "added"),
    [
        pytest.param({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}, 1, id="one"),
        pytest.param({"operator": "Exists"}, 0, id="everything"),
        pytest.param(
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"}, 2, id="other"
        ),
        pytest.param({"key": "example.com/x", "operator": "Exists"}, 2, id="something else"),
    ],
)
async def test_a_pod_with_its_own_tolerations_is_left_alone(api, pod, toleration, added):
    made = await api.made(PODS, pod(tolerations=[toleration]))

    assert len(made["spec"]["tolerations"]) == 1 + added
    assert toleration in made["spec"]["tolerations"]
