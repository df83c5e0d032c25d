"""Warnings in a policy's status: what no object of a kind that it names can have."""

import pytest

from tests.apiserver.support import answer_when

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


async def status(api, policy):
    await api.made(POLICIES, policy)
    found = await answer_when(
        lambda: api.get(f"{POLICIES}/p"), lambda reply: "observedGeneration" in reply.body["status"]
    )
    return found.body["status"]


def rule(*resources, group="", version="v1"):
    return {"apiGroups": [group], "apiVersions": [version], "operations": ["CREATE"], "resources": list(resources)}


@pytest.mark.parametrize(
    "expression",
    [
        "object.spec.containers.all(c, c.image.startsWith('registry/'))",
        "!has(object.metadata.labels) || object.metadata.labels['app'] == object.metadata.namespace",
        "object.spec.containers[0].resources.limits['cpu'] == '1' && object.spec.terminationGracePeriodSeconds < 30",
        "oldObject == null || timestamp(oldObject.metadata.creationTimestamp) < timestamp('2030-01-01T00:00:00Z')",
        "object.spec.containers.all(c, c.livenessProbe.httpGet.port == 80 || c.livenessProbe.httpGet.port == 'http')",
    ],
)
async def test_a_well_typed_expression_has_no_warning(api, policy, expression):
    result = await status(api, policy(expression, match={"resourceRules": [rule("pods")]}))
    assert result == {"observedGeneration": 1, "typeChecking": {}}


async def test_a_type_error_is_reported_by_field_and_kind(api, policy):
    validations = (
        {"expression": "object.spec.replicas > 1", "messageExpression": "string(object.spec.nope)"},
        "variables.many && object.spec.replicas > 'x'",
    )
    rules = [rule("deployments", "replicasets", group="apps"), rule("pods", "pods/status")]
    variables = [{"name": "many", "expression": "object.spec.replicas > 2"}]
    result = await status(api, policy(*validations, match={"resourceRules": rules}, variables=variables))
    warnings = {warning["fieldRef"]: warning["warning"] for warning in result["typeChecking"]["expressionWarnings"]}
    assert sorted(warnings) == [
        "spec.validations[0].expression",
        "spec.validations[0].messageExpression",
        "spec.validations[1].expression",
    ]
    alone = warnings["spec.validations[0].expression"]
    assert alone.startswith("/v1, Kind=Pod: compilation failed: ERROR: <input>:1:12: undefined field 'replicas'")
    assert "Deployment" not in alone
    for kind in ("apps/v1, Kind=Deployment", "apps/v1, Kind=ReplicaSet"):
        assert f"{kind}: compilation failed" in warnings["spec.validations[1].expression"]


@pytest.mark.parametrize(
    "given", [rule("*"), rule("pods", group="*"), rule("pods", version="*"), rule("nothing"), rule("pods/status")]
)
async def test_rules_that_name_no_kind_are_not_checked(api, policy, given):
    result = await status(api, policy("object.nope == 1", match={"resourceRules": [given]}))
    assert result["typeChecking"] == {}


async def test_a_kind_that_contains_itself_is_known_down_to_there(api, policy):
    name = "customresourcedefinitions"
    deep = "object.spec.versions.all(v, v.schema.openAPIV3Schema.properties['spec'].properties['x'].anything == 1)"
    result = await status(api, policy(deep, match={"resourceRules": [rule(name, group="apiextensions.k8s.io")]}))
    assert result["typeChecking"] == {}
