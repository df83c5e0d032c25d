"""Autoscalers that make no sense are refused with upstream's messages."""

import pytest

from podwire.kinds.builtin.autoscaling.autoscaler_validation import validate_autoscaler, validate_status


def cpu(**target):
    return {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", **target}}}


def hpa(**spec):
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {"spec": {"scaleTargetRef": reference, "maxReplicas": 3, "metrics": [cpu(averageUtilization=50)], **spec}}


def rules(**more):
    return {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}], **more}}


def test_a_sound_one_is_accepted():
    assert validate_autoscaler(hpa(behavior=rules(tolerance="0.05", selectPolicy="Min"))) == []
    assert validate_autoscaler({"spec": {**hpa()["spec"], "metrics": None}}) == []


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"maxReplicas": 0}, "spec.maxReplicas", "must be set and greater than 0"),
        ({"maxReplicas": -1}, "spec.maxReplicas", "must be greater than or equal to 1"),
        ({"minReplicas": 0}, "spec.minReplicas", "must be greater than or equal to 1"),
        ({"minReplicas": 5}, "spec.maxReplicas", "must be greater than or equal to `minReplicas`"),
        ({"scaleTargetRef": {"kind": "D"}}, "spec.scaleTargetRef.name", ""),
        ({"scaleTargetRef": {"kind": "D", "name": ".."}}, "spec.scaleTargetRef.name", "may not be '..'"),
        (
            {"scaleTargetRef": {"kind": "D", "name": "x", "apiVersion": "a/b/c"}},
            "spec.scaleTargetRef.apiVersion",
            "unexpected GroupVersion string: a/b/c",
        ),
        ({"metrics": [{}]}, "spec.metrics[0].type", "must specify a metric source type"),
        (
            {"metrics": [{"type": "Resource"}]},
            "spec.metrics[0].resource",
            "must populate information for the given metric source",
        ),
        (
            {"metrics": [{**cpu(averageUtilization=5), "pods": {"metric": {"name": "x"}, "target": {}}}]},
            "spec.metrics[0].pods",
            "must populate the given metric source only",
        ),
        (
            {"metrics": [cpu()]},
            "spec.metrics[0].resource.target.averageUtilization",
            "must set either a target raw value or a target utilization",
        ),
        (
            {"metrics": [cpu(averageUtilization=5, averageValue="1")]},
            "spec.metrics[0].resource.target.averageValue",
            "may not set both a target raw value and a target utilization",
        ),
        (
            {"metrics": [cpu(averageUtilization=0)]},
            "spec.metrics[0].resource.target.averageUtilization",
            "must be greater than 0",
        ),
        ({"metrics": [cpu(averageValue="-1")]}, "spec.metrics[0].resource.target.averageValue", "must be positive"),
        (
            {"metrics": [{"type": "Pods", "pods": {"metric": {}, "target": {"type": "AverageValue"}}}]},
            "spec.metrics[0].pods.metric.name",
            "must specify a metric name",
        ),
        (
            {"metrics": [{"type": "External", "external": {"metric": {"name": "x"}, "target": {"type": "Value"}}}]},
            "spec.metrics[0].external.target.averageValue",
            "must set either a target value for metric or a per-pod target",
        ),
        (
            {"metrics": [{"type": "Object", "object": {"metric": {"name": "x"}, "target": {"type": "Odd"}}}]},
            "spec.metrics[0].object.target.type",
            "must be either Utilization, Value, or AverageValue",
        ),
        (
            {"metrics": [{"type": "ContainerResource", "containerResource": {"name": "cpu", "target": {}}}]},
            "spec.metrics[0].containerResource.container",
            "must specify a container",
        ),
        ({"behavior": {"scaleDown": {}}}, "spec.behavior.scaleDown.policies", "must specify at least one Policy"),
        (
            {"behavior": rules(stabilizationWindowSeconds=3601)},
            "spec.behavior.scaleUp.stabilizationWindowSeconds",
            "must be less than or equal to 3600",
        ),
        (
            {"behavior": rules(policies=[{"type": "Pods", "value": 0, "periodSeconds": 60}])},
            "spec.behavior.scaleUp.policies[0].value",
            "must be greater than zero",
        ),
        (
            {"behavior": rules(policies=[{"type": "Pods", "value": 1, "periodSeconds": 1801}])},
            "spec.behavior.scaleUp.policies[0].periodSeconds",
            "must be less than or equal to 1800",
        ),
        ({"behavior": rules(selectPolicy="Odd")}, "spec.behavior.scaleUp.selectPolicy", ""),
        ({"behavior": rules(policies=[{"type": "Odd"}])}, "spec.behavior.scaleUp.policies[0].type", ""),
    ],
)
def test_errors_name_the_field(spec, field, message):
    found = [error.detail for error in validate_autoscaler(hpa(**spec)) if error.field == field]
    assert any(message in detail for detail in found), found


def test_replicas_of_a_status_are_not_negative():
    [error] = validate_status({"status": {"currentReplicas": -1}}, {})
    assert error.field == "status.currentReplicas"
