"""Priority: classes of pods and the default class."""

import pytest

from podwire.apiserver.admission.priorities import default_class

PODS = "/api/v1/namespaces/default/pods"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


async def test_without_a_class_the_priority_is_zero(api, pod):
    made = await api.made(PODS, pod())

    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert "priorityClassName" not in made["spec"]


@pytest.mark.parametrize(
    ("name", "value"), [("system-node-critical", 2000001000), ("system-cluster-critical", 2000000000)]
)
async def test_the_systems_classes_are_there(api, pod, name, value):
    made = await api.made("/api/v1/namespaces/default/pods", pod(priorityClassName=name))

    assert made["spec"]["priority"] == value


async def test_a_priority_class_sets_priority_and_preemption_policy(api, pod):
    await api.made(CLASSES, {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})

    made = await api.made(PODS, pod(priorityClassName="high"))

    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (1000, "Never")


async def test_the_default_class_applies_to_pods_without_a_class(api, pod):
    await api.made(CLASSES, {"metadata": {"name": "usual"}, "value": 10, "globalDefault": True})

    made = await api.made(PODS, pod())

    assert (made["spec"]["priorityClassName"], made["spec"]["priority"]) == ("usual", 10)


async def test_a_second_default_class_is_forbidden(api):
    await api.made(CLASSES, {"metadata": {"name": "usual"}, "value": 10, "globalDefault": True})

    reply = await api.post(CLASSES, {"metadata": {"name": "other"}, "value": 1, "globalDefault": True})

    assert reply.status == 403
    assert reply.message == (
        'priorityclasses.scheduling.k8s.io "other" is forbidden: '
        "PriorityClass usual is already marked as default. Only one default can exist"
    )


async def test_the_default_class_itself_may_be_updated(api):
    made = await api.made(CLASSES, {"metadata": {"name": "usual"}, "value": 10, "globalDefault": True})

    reply = await api.put(f"{CLASSES}/usual", {**made, "description": "for all"})

    assert reply.status == 200


async def test_a_deleted_default_class_no_longer_applies(api, pod):
    await api.made(CLASSES, {"metadata": {"name": "usual"}, "value": 10, "globalDefault": True})
    await api.delete(f"{CLASSES}/usual")

    made = await api.made(PODS, pod())

    assert made["spec"]["priority"] == 0


def test_the_lowest_of_several_default_classes_applies():
    classes = [
        {"metadata": {"name": name}, "value": value, "globalDefault": default}
        for name, value, default in (("high", 1000, True), ("low", 10, True), ("lowest", 1, False))
    ]

    assert default_class(classes)["metadata"]["name"] == "low"


async def test_a_class_that_is_not_there_is_forbidden(api, pod):
    reply = await api.post(PODS, pod(priorityClassName="none"))

    assert reply.status == 403
    assert reply.message == 'pods "web" is forbidden: no PriorityClass with name none was found'


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param(
            {"priority": 7}, "the integer value of priority (7) must not be provided in pod spec", id="number"
        ),
        pytest.param(
            {"preemptionPolicy": "Never"},
            "the string value of PreemptionPolicy (Never) must not be provided",
            id="policy",
        ),
    ],
)
async def test_a_pod_may_not_choose_its_priority_itself(api, pod, spec, said):
    reply = await api.post(PODS, pod(**spec))

    assert reply.status == 403
    assert said in reply.message


async def test_the_computed_priority_may_be_given(api, pod):
    assert (await api.post(PODS, pod(priority=0, preemptionPolicy="PreemptLowerPriority"))).status == 201
