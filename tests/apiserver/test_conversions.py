"""Kinds that are served in two versions and stored in one: events and autoscalers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.kinds.builtin.autoscaling import horizontal_pod_autoscaler

EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
V1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
V2 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
ABOUT = {"kind": "Pod", "namespace": "default", "name": "web"}


# --- events -----------------------------------------------------------------------------------------------------------


async def test_an_old_event_is_seen_in_the_new_words(api):
    event = {
        "metadata": {"name": "e"},
        "involvedObject": ABOUT,
        "reason": "Started",
        "message": "started it",
        "source": {"component": "kubelet", "host": "n1"},
        "firstTimestamp": "2027-01-15T08:00:00Z",
        "lastTimestamp": "2027-01-15T08:01:00Z",
        "count": 3,
        "type": "Normal",
    }
    made = await api.made(EVENTS, event)

    new = (await api.get(f"{NEW_EVENTS}/e")).body

    assert new["apiVersion"] == "events.k8s.io/v1"
    assert new["regarding"] == ABOUT
    assert new["note"] == "started it"
    assert new["deprecatedSource"] == {"component": "kubelet", "host": "n1"}
    assert (new["deprecatedFirstTimestamp"], new["deprecatedCount"]) == ("2027-01-15T08:00:00Z", 3)
    assert new["metadata"] == made["metadata"]
    assert not {"involvedObject", "message", "source", "count", "firstTimestamp"} & {*new}


async def test_a_new_event_is_seen_in_the_old_words(api):
    event = {
        "metadata": {"name": "e"},
        "regarding": ABOUT,
        "reason": "Scheduled",
        "action": "Binding",
        "note": "went to n1",
        "type": "Normal",
        "eventTime": "2027-01-15T08:00:00.123456Z",
        "reportingController": "default-scheduler",
        "reportingInstance": "s-1",
    }
    made = await api.made(NEW_EVENTS, event)
    assert made["note"] == "went to n1"

    old = (await api.get(f"{EVENTS}/e")).body

    assert (old["apiVersion"], old["involvedObject"], old["message"]) == ("v1", ABOUT, "went to n1")
    assert old["reportingComponent"] == "default-scheduler"
    assert old["eventTime"] == "2027-01-15T08:00:00.123456Z"


async def test_one_event_is_delivered_to_the_watchers_of_both_groups(api):
    old, new = await api.watch(EVENTS), await api.watch(NEW_EVENTS)

    await api.made(EVENTS, {"metadata": {"name": "e"}, "involvedObject": ABOUT, "message": "hello"})
    await api.patch(f"{EVENTS}/e", {"message": "again"})

    assert [item["object"]["message"] for item in await old.take(2)] == ["hello", "again"]
    assert [item["object"]["note"] for item in await new.take(2)] == ["hello", "again"]


async def test_an_event_is_one_object_in_both_groups(api):
    await api.made(EVENTS, {"metadata": {"name": "e"}, "involvedObject": ABOUT})

    await api.delete(f"{NEW_EVENTS}/e")

    assert (await api.get(f"{EVENTS}/e")).status == 404


# --- autoscalers ------------------------------------------------------------------------------------------------------


async def test_the_old_cpu_percentage_is_a_metric_of_the_new_version(api):
    spec = {"scaleTargetRef": TARGET, "maxReplicas": 5, "targetCPUUtilizationPercentage": 70}
    await api.made(V1, {"metadata": {"name": "h"}, "spec": spec})

    new = (await api.get(f"{V2}/h")).body

    (metric,) = new["spec"]["metrics"]
    assert metric["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    assert "targetCPUUtilizationPercentage" not in new["spec"]
    assert (await api.get(f"{V1}/h")).body["spec"]["targetCPUUtilizationPercentage"] == 70


@pytest.fixture
async def scaler(api):
    """A server with an autoscaler that the old version cannot express."""
    memory = {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}},
    }
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 60}}
    spec = {
        "scaleTargetRef": TARGET,
        "minReplicas": 1,
        "maxReplicas": 5,
        "metrics": [cpu, memory],
        "behavior": behavior,
    }
    await api.made(V2, {"metadata": {"name": "h"}, "spec": spec})
    current = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40}}}
    able = {"type": "AbleToScale", "status": "True", "reason": "Ready", "message": "fine",
            "lastTransitionTime": "2027-01-15T08:00:00Z"}  # fmt: skip
    status = {"currentReplicas": 2, "desiredReplicas": 2, "currentMetrics": [current], "conditions": [able]}
    reply = await api.patch(f"{V2}/h/status", {"status": status})
    assert reply.status == 200, reply.raw
    return api


async def test_the_old_version_shows_the_fields_that_it_has(scaler):
    old = (await scaler.get(f"{V1}/h")).body

    assert old["spec"]["targetCPUUtilizationPercentage"] == 50
    assert old["status"]["currentCPUUtilizationPercentage"] == 40
    assert not {"metrics", "behavior"} & {*old["spec"]}
    assert not {"currentMetrics", "conditions"} & {*old["status"]}


async def test_a_write_through_the_old_version_loses_nothing(scaler):
    before = (await scaler.get(f"{V2}/h")).body

    reply = await scaler.patch(f"{V1}/h", {"metadata": {"labels": {"a": "b"}}})

    assert reply.status == 200
    after = (await scaler.get(f"{V2}/h")).body
    assert after["spec"] == before["spec"]
    assert after["status"] == before["status"]
    assert after["metadata"]["labels"] == {"a": "b"}
    assert "annotations" not in after["metadata"]


async def test_a_write_without_a_change_through_the_old_version_is_not_a_change(scaler):
    old = (await scaler.get(f"{V1}/h")).body
    revision = scaler.store.revision

    assert (await scaler.put(f"{V1}/h", old)).version == old["metadata"]["resourceVersion"]
    assert scaler.store.revision == revision


async def test_both_versions_are_watched(scaler):
    revision = scaler.store.revision
    old, new = [await scaler.watch(f"{item}?resourceVersion={revision}") for item in (V1, V2)]

    await scaler.patch(f"{V2}/h", {"spec": {"maxReplicas": 9}})

    first, second = await old.next(), await new.next()
    assert first["object"]["apiVersion"] == "autoscaling/v1"
    assert first["object"]["spec"]["targetCPUUtilizationPercentage"] == 50
    assert second["object"]["apiVersion"] == "autoscaling/v2"


# --- there and back ---------------------------------------------------------------------------------------------------

_METRICS = st.lists(
    st.one_of(
        st.integers(1, 100).map(
            lambda n: {"type": "Resource", "resource": {"name": "memory", "target": {"averageUtilization": n}}}
        ),
        st.integers(1, 9).map(
            lambda n: {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"value": str(n)}}}
        ),
    ),
    max_size=3,
)
_SPECS = st.fixed_dictionaries(
    {"maxReplicas": st.integers(1, 9)},
    optional={"behavior": st.just({"scaleUp": {"stabilizationWindowSeconds": 5}}), "metrics": _METRICS.filter(bool)},
)


@given(spec=_SPECS, annotations=st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3), max_size=2))
@settings(max_examples=50)
def test_an_autoscaler_that_goes_to_the_old_version_and_back_is_the_same(spec, annotations):
    metadata = {"name": "h", **({"annotations": annotations} if annotations else {})}
    obj = {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", "metadata": metadata, "spec": spec}

    assert horizontal_pod_autoscaler.to_v2(horizontal_pod_autoscaler.from_v2(obj)) == obj


@pytest.mark.parametrize("text", ["nonsense", "{}", "7", '"x"'])
def test_a_handwritten_annotation_does_no_harm(text):
    metadata = {"name": "h", "annotations": {"horizontal_pod_autoscaler.alpha.kubernetes.io/metrics": text}}
    obj = {"apiVersion": "autoscaling/v1", "metadata": metadata, "spec": {"maxReplicas": 3}}

    assert horizontal_pod_autoscaler.to_v2(obj)["spec"] == {"maxReplicas": 3}
