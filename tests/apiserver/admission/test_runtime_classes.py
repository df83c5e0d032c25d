"""Effects of a RuntimeClass on its pods; nobody gets another runtime than the one that was requested."""

import pytest

PODS = "/api/v1/namespaces/default/pods"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


async def test_a_class_that_is_not_there_is_forbidden(api, pod):
    reply = await api.post(PODS, pod(runtimeClassName="sealed"))

    assert (reply.status, reply.body["reason"]) == (403, "Forbidden")
    assert reply.message == 'pods "web" is forbidden: pod rejected: RuntimeClass "sealed" not found'


async def test_overhead_belongs_to_a_class(api, pod):
    reply = await api.post(PODS, pod(overhead={"cpu": "1"}))

    why = "Pod Overhead set without corresponding RuntimeClass defined Overhead"
    assert (reply.status, reply.message) == (403, f'pods "web" is forbidden: pod rejected: {why}')


async def test_a_pod_gets_the_overhead_and_scheduling_of_its_class(api, pod):
    toleration = {"key": "sealed", "operator": "Exists"}
    scheduling = {"nodeSelector": {"sealed": "yes"}, "tolerations": [toleration]}
    await api.made(CLASSES, {"metadata": {"name": "bare"}, "handler": "bare"})
    overhead = {"podFixed": {"cpu": "250m"}}
    sealed = {"metadata": {"name": "sealed"}, "handler": "box", "overhead": overhead, "scheduling": scheduling}
    await api.made(CLASSES, sealed)

    made = await api.made(PODS, pod(runtimeClassName="sealed", nodeSelector={"zone": "a"}))
    plain = await api.made(PODS, pod(name="plain", runtimeClassName="bare"))

    assert made["spec"]["overhead"] == {"cpu": "250m"}
    assert made["spec"]["nodeSelector"] == {"zone": "a", "sealed": "yes"}
    assert toleration in made["spec"]["tolerations"]
    assert not {"overhead", "nodeSelector"} & plain["spec"].keys()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        pytest.param(
            {"overhead": {"cpu": "1"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            id="another overhead",
        ),
        pytest.param(
            {"nodeSelector": {"sealed": "no"}},
            "conflict: runtimeClass.scheduling.nodeSelector[sealed] = yes; pod.spec.nodeSelector[sealed] = no",
            id="other nodes",
        ),
    ],
)
async def test_a_pod_that_contradicts_its_class_is_refused(api, pod, given, why):
    sealed = {"metadata": {"name": "sealed"}, "handler": "box", "overhead": {"podFixed": {"cpu": "250m"}}}
    await api.made(CLASSES, {**sealed, "scheduling": {"nodeSelector": {"sealed": "yes"}}})

    reply = await api.post(PODS, pod(runtimeClassName="sealed", **given))

    assert (reply.status, reply.message) == (403, f'pods "web" is forbidden: {why}')
