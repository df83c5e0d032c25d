"""MutatingAdmissionPolicy: apply configurations and JSON patches, parameters, variables, the second round, failures."""

from typing import Any

import pytest

from tests.apiserver.support import CONFIGS, PODS, answer_when

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{GROUP}/mutatingadmissionpolicies", f"{GROUP}/mutatingadmissionpolicybindings"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def apply(expression: str) -> dict[str, Any]:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def json_patch(expression: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


@pytest.fixture
def mutating(api, rule):
    """Stores a policy for config maps and a binding, and waits until both are in force."""

    async def make(*mutations: Any, name: str = "p", resources=("configmaps",), binding=None, **spec: Any) -> None:
        whole = {
            "matchConstraints": {"resourceRules": [rule(*resources)]},
            "mutations": list(mutations),
            "reinvocationPolicy": "Never",
            **spec,
        }
        await api.made(POLICIES, {"metadata": {"name": name}, "spec": whole})
        await api.made(BINDINGS, {"metadata": {"name": name}, "spec": {"policyName": name, **(binding or {})}})

        async def active() -> set[str]:
            return {bound.policy.name for bound in api.assembled.mutating_policies.active.bound}

        await answer_when(active, lambda names: name in names)

    return make


async def test_an_apply_configuration_is_merged(api, mutating, deployment):
    await mutating(
        apply('Object{metadata: Object.metadata{annotations: {"by": "policy"}}, spec: Object.spec{replicas: 1337}}'),
        resources=("deployments",),
    )

    reply = await api.post(DEPLOYMENTS, deployment(replicas=1))

    assert reply.status == 201, reply.raw
    assert reply.body["spec"]["replicas"] == 1337
    assert reply.body["metadata"]["annotations"] == {"by": "policy"}
    assert reply.body["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:1.27"


async def test_elements_of_lists_are_merged_by_their_keys(api, mutating, pod):
    expression = (
        "Object{spec: Object.spec{containers: object.spec.containers.map(c, "
        'Object.spec.containers{name: c.name, env: [Object.spec.containers.env{name: "A", value: "1"}]})}}'
    )
    await mutating(apply(expression), resources=("pods",))

    reply = await api.post(PODS, pod())

    assert reply.status == 201, reply.raw
    [container] = reply.body["spec"]["containers"]
    assert (container["image"], container["env"]) == ("busybox:1.36", [{"name": "A", "value": "1"}])


async def test_a_json_patch_is_applied(api, mutating, config):
    expression = (
        '[JSONPatch{op: "test", path: "/data/a", value: "1"}, '
        'JSONPatch{op: "add", path: "/metadata/annotations", value: {"a": "b"}}, '
        'JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("x/y"), value: object.data.a}]'
    )
    await mutating(json_patch(expression))

    assert (await api.post(CONFIGS, config(a="1"))).body["metadata"]["annotations"] == {"a": "b", "x/y": "1"}


async def test_mutations_run_in_order_with_variables(api, mutating, config):
    await mutating(
        apply('Object{data: {"b": variables.name}}'),
        apply('Object{data: {"c": object.data.b + variables.name}}'),
        variables=[{"name": "name", "expression": "object.metadata.name"}],
    )

    assert (await api.post(CONFIGS, config())).body["data"] == {"b": "one", "c": "oneone"}


async def test_parameters_are_those_of_the_binding(api, mutating, config):
    await api.post(CONFIGS, config("limits", value="7"))
    await mutating(
        apply('Object{data: {"b": params.data.value}}'),
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        binding={"paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}},
    )

    assert (await api.post(CONFIGS, config())).body["data"] == {"b": "7"}


async def test_conditions_and_updates(api, mutating, config):
    await mutating(
        apply('Object{data: {"seen": request.operation}}'),
        matchConditions=[{"name": "two", "expression": "object.metadata.name == 'two'"}],
    )

    assert "data" not in (await api.post(CONFIGS, config())).body or not (await api.get(f"{CONFIGS}/one")).body["data"]
    assert (await api.post(CONFIGS, config("two"))).body["data"] == {"seen": "CREATE"}
    assert (await api.patch(f"{CONFIGS}/two", {"data": {"a": "1"}})).body["data"] == {"a": "1", "seen": "UPDATE"}


async def test_a_policy_before_a_change_runs_again_if_it_wants(api, mutating, config):
    count = "Object{data: {'keys': string(size(object.data))}}"
    await mutating(apply(count), name="a", reinvocationPolicy="IfNeeded")
    await mutating(apply("Object{data: {'more': 'x'}}"), name="b")

    assert (await api.post(CONFIGS, config(a="1"))).body["data"] == {"a": "1", "keys": "3", "more": "x"}


@pytest.mark.parametrize(
    ("mutation", "words"),
    [
        (apply("Object{data: {'a': object.data.absent}}"), "no such key: absent"),
        (apply("Object{spec: Object.spec{x: 1}}"), ".spec: field not declared in schema"),
        (json_patch("[JSONPatch{op: 'remove', path: '/absent'}]"), "error applying patch"),
    ],
)
async def test_a_mutation_that_fails_denies_the_request_or_is_ignored(api, mutating, config, mutation, words):
    await mutating(mutation, failurePolicy="Ignore", name="ignored")
    assert (await api.post(CONFIGS, config(a="1"))).status == 201
    await mutating(mutation)

    reply = await api.post(CONFIGS, config("two", a="1"))

    assert reply.status == 422
    assert "configmaps \"two\" is forbidden: policy 'p' with binding 'p' denied request: " in reply.message
    assert words in reply.message


async def test_atomic_lists_cannot_be_changed_by_an_apply_configuration(api, mutating, pod):
    expression = "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', args: ['x']}]}}"
    await mutating(apply(expression), resources=("pods",))

    reply = await api.post(PODS, pod())

    assert 'may not mutate atomic arrays, maps or structs: .spec.containers[name="c"].args' in reply.message


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"mutations": []}, "spec.mutations: Required value: mutations must contain at least one item"),
        ({"mutations": [{"patchType": "Merge"}]}, 'spec.mutations[0].patchType: Unsupported value: "Merge"'),
        (
            {"mutations": [{"patchType": "JSONPatch"}]},
            "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
        ),
        ({"mutations": [apply("1")]}, "must evaluate to Object but got int"),
        (
            {"mutations": [apply("Object{spec: Object.wrong{}}")]},
            'type mismatch: unexpected type name \\"Object.wrong\\"',
        ),
        ({"mutations": [apply("Object{")]}, "compilation failed"),
        ({"reinvocationPolicy": "Often"}, 'spec.reinvocationPolicy: Unsupported value: "Often"'),
        ({"operations": ("DELETE",)}, 'operations: Unsupported value: "DELETE"'),
    ],
)
async def test_an_invalid_policy_is_rejected(api, rule, spec, error):
    rules = [rule("configmaps", operations=spec.pop("operations", ("CREATE",)))]
    whole = {
        "matchConstraints": {"resourceRules": rules},
        "mutations": [apply("Object{}")],
        "reinvocationPolicy": "Never",
    }

    reply = await api.post(POLICIES, {"metadata": {"name": "p"}, "spec": {**whole, **spec}})

    assert reply.status == 422
    assert error.replace('\\"', '"') in reply.message.replace('\\"', '"')
