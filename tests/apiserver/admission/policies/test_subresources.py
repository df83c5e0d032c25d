"""Objects that policies see at each entry point: subresources, connections, other versions, namespaces."""

import pytest

CONFIGS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
SPACES = "/api/v1/namespaces"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
EVERYTHING = ("*",)


@pytest.fixture
def only(policy, binding, enforce, rule):
    """Refuses everything at a door for which an expression does not hold."""

    async def enforced(resource, expression, **match):
        rules = {"resourceRules": [rule(resource, operations=EVERYTHING)], **match}
        await enforce(policy({"expression": expression, "message": "no"}, match=rules), binding())

    return enforced


def denied(reply):
    return reply.status == 422 and reply.message.endswith("denied request: no")


async def test_a_binding_is_created_below_its_pod(api, pod, only):
    await only("pods/binding", "request.operation == 'CREATE' && object.target.name == 'good' && oldObject == null")
    await api.made(PODS, pod("web"))
    bind = f"{PODS}/web/binding"
    assert denied(await api.post(bind, {"target": {"name": "bad"}}))
    whole = {"metadata": {"name": "web"}, "target": {"name": "bad"}}
    assert denied(await api.post("/api/v1/namespaces/default/bindings", whole))
    assert (await api.post(bind, {"target": {"name": "good"}})).status == 201


async def test_an_eviction_is_validated_as_an_eviction_not_a_deletion(api, pod, only, policy, binding, enforce, rule):
    await only("pods/eviction", "request.kind.kind == 'Eviction' && request.name != 'kept'")
    deletes = {"resourceRules": [rule("pods", "pods/status", operations=("DELETE", "UPDATE"))]}
    await enforce(policy("false", name="q", match=deletes), binding("q", "q"))
    for name in ("kept", "free"):
        await api.made(PODS, pod(name))
    assert denied(await api.post(f"{PODS}/kept/eviction", {"metadata": {"name": "kept"}}))
    assert (await api.delete(f"{PODS}/free")).status == 422
    assert (await api.post(f"{PODS}/free/eviction", {"metadata": {"name": "free"}})).status == 201


@pytest.mark.parametrize("how", ["update", "patch", "apply"])
async def test_scaling_shows_a_scale(api, deployment, only, how):
    await only(
        "deployments/scale",
        "object.kind == 'Scale' && oldObject.spec.replicas == 2 && object.spec.replicas < 5"
        " && request.subResource == 'scale' && request.kind.group == 'autoscaling'",
    )
    await api.made(DEPLOYMENTS, deployment("web", replicas=2))
    scale = f"{DEPLOYMENTS}/web/scale"

    async def scaled(replicas):
        if how == "update":
            return await api.put(scale, {"metadata": {"name": "web"}, "spec": {"replicas": replicas}})
        body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": replicas}}
        if how == "patch":
            return await api.patch(scale, {"spec": {"replicas": replicas}})
        return await api.patch(f"{scale}?fieldManager=m&force=true", body, "apply")

    assert denied(await scaled(5))
    assert (await scaled(4)).status == 200


async def test_tokens_are_requested_below_their_account(api, only):
    await only("serviceaccounts/token", "object.spec.expirationSeconds < 7200")
    ask = f"{ACCOUNTS}/default/token"
    assert denied(await api.post(ask, {"spec": {"audiences": [], "expirationSeconds": 7200}}))
    assert (await api.post(ask, {"spec": {"audiences": [], "expirationSeconds": 3600}})).status == 201


async def test_a_status_is_a_part_of_its_own(api, pod, only):
    await only("pods/status", "object.status.phase != 'Failed' && request.operation == 'UPDATE'")
    await api.made(PODS, pod("web"))
    assert denied(await api.patch(f"{PODS}/web/status", {"status": {"phase": "Failed"}}))
    assert (await api.patch(f"{PODS}/web/status", {"status": {"phase": "Running"}})).status == 200


async def test_connect_requests_show_their_options_as_the_object(api, pod, only):
    await only(
        "pods/exec",
        "request.operation == 'CONNECT' && object.kind == 'PodExecOptions' && object.command == ['ls', '/']"
        " && object.stdin && !has(object.tty) && object.container == 'c' && request.name == 'web'",
    )
    await api.made("/api/v1/nodes", {"metadata": {"name": "n"}})
    await api.made(PODS, pod("web", node="n"))
    asked = f"{PODS}/web/exec?container=c&stdin=true&command=ls"
    assert denied(await api.post(asked))
    allowed = await api.post(f"{asked}&command=/")
    assert allowed.status == 503, "there is no kubelet to go on to"


@pytest.mark.parametrize(("matching", "refused"), [("Equivalent", True), ("Exact", False)])
async def test_another_version_is_validated_in_the_policys_version(api, policy, binding, enforce, matching, refused):
    rule = {
        "apiGroups": ["autoscaling"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["horizontalpodautoscalers"],
    }
    expression = (
        "object.apiVersion == 'autoscaling/v1' && object.spec.targetCPUUtilizationPercentage == 50 &&"
        " request.resource.version == 'v1' && request.requestResource.version == 'v2' && object.spec.maxReplicas < 5"
    )
    result = policy(
        {"expression": expression, "message": "no"}, match={"matchPolicy": matching, "resourceRules": [rule]}
    )
    await enforce(result, binding())
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": target, "metrics": [metric]}
    scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    small = await api.post(scalers, {"metadata": {"name": "small"}, "spec": {**spec, "maxReplicas": 4}})
    assert small.status == 201, small.message
    assert (
        denied(await api.post(scalers, {"metadata": {"name": "large"}, "spec": {**spec, "maxReplicas": 9}})) is refused
    )


async def test_namespaces_are_selected_by_their_labels(api, config, only):
    await only("configmaps", "false", namespaceSelector={"matchLabels": {"strict": "yes"}})
    for name, strict in (("strict", "yes"), ("lax", "no")):
        await api.made(SPACES, {"metadata": {"name": name, "labels": {"strict": strict}}})
    assert denied(await api.post(f"{SPACES}/strict/configmaps", config()))
    assert (await api.post(f"{SPACES}/lax/configmaps", config())).status == 201


async def test_a_namespace_is_selected_by_the_labels_that_it_will_have(api, only):
    await only("namespaces", "false", namespaceSelector={"matchLabels": {"strict": "yes"}})
    assert denied(await api.post(SPACES, {"metadata": {"name": "one", "labels": {"strict": "yes"}}}))
    await api.made(SPACES, {"metadata": {"name": "two"}})
    assert denied(await api.patch(f"{SPACES}/two", {"metadata": {"labels": {"strict": "yes"}}}))


async def test_a_namespace_selector_does_not_exclude_cluster_scoped_objects(api, only):
    await only("priorityclasses", "namespaceObject == null && false", namespaceSelector={"matchLabels": {"a": "b"}})
    reply = await api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "one"}, "value": 1})
    assert denied(reply)


async def test_objects_are_selected_by_their_labels(api, config, only):
    await only("configmaps", "false", objectSelector={"matchLabels": {"strict": "yes"}})
    assert denied(await api.post(CONFIGS, config("one", {"strict": "yes"})))
    assert (await api.post(CONFIGS, config("two"))).status == 201
    assert denied(await api.patch(f"{CONFIGS}/two", {"metadata": {"labels": {"strict": "yes"}}}))


async def test_a_binding_narrows_its_policy(api, config, policy, binding, enforce):
    narrow = {"excludeResourceRules": [], "objectSelector": {"matchLabels": {"strict": "yes"}}}
    await enforce(policy({"expression": "false", "message": "no"}), binding(matchResources=narrow))
    assert denied(await api.post(CONFIGS, config("one", {"strict": "yes"})))
    assert (await api.post(CONFIGS, config("two"))).status == 201


async def test_custom_resources_are_validated_like_built_in_ones(widgets, policy, binding, enforce, rule):
    result = policy({"expression": "object.size < 5", "message": "no"}, match={"resourceRules": [rule("widgets")]})
    await enforce(result, binding())
    path = "/apis/example.com/v1/namespaces/default/widgets"
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    assert denied(await widgets.post(path, {**body, "size": 9}))
    assert (await widgets.post(path, {**body, "size": 3})).status == 201
