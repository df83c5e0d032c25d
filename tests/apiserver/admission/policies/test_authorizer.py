"""Expressions of policies and match conditions ask the server's authorizer."""

import pytest

from podwire.protocols.k8sapi.server_side import Certificate
from tests.apiserver.support import CONFIGS, answer_when

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
JANE = Certificate("jane", ("devs",))
BREAK_GLASS = {"apiGroups": ["example.com"], "resources": ["policies"], "resourceNames": ["p"], "verbs": ["skip"]}


async def grant(api, name, subject, *rules):
    """Binds a ClusterRole, cluster-wide."""
    group = "rbac.authorization.k8s.io"
    await api.made(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    await api.made(f"{RBAC}/clusterrolebindings", body)
    await answer_when(lambda: _bound(api, name), bool)


async def _bound(api, name):
    """The informer of roles has the binding."""
    roles = api.assembled.engine.identity.authorizer.roles
    return any(name in key for key in roles._bindings.get("", {}))


USER = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"}
ACCOUNT = {"kind": "ServiceAccount", "namespace": "default", "name": "robot"}


@pytest.fixture
async def jane(api):
    rules = (
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "update"]},
        {"apiGroups": [""], "resources": ["pods/log"], "resourceNames": ["web"], "verbs": ["get"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    )
    await grant(api, "jane", USER, *rules)
    await grant(api, "robot", ACCOUNT, {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]})
    return JANE


@pytest.mark.parametrize(
    "expression",
    [
        "authorizer.requestResource.check('create').allowed()",
        "!authorizer.requestResource.check('delete').allowed()",
        "authorizer.group('').resource('configmaps').namespace('default').check('create').allowed()",
        "authorizer.group('').resource('pods').subresource('log').name('web').check('get').allowed()",
        "!authorizer.group('').resource('pods').subresource('log').name('db').check('get').allowed()",
        "!authorizer.group('').resource('pods').check('get').allowed()",
        "authorizer.path('/metrics').check('get').allowed() && !authorizer.path('/logs').check('get').allowed()",
        "authorizer.requestResource.check('create').reason().contains('jane')",
        "!authorizer.requestResource.check('create').errored()",
        "authorizer.serviceAccount('default', 'robot').group('apps').resource('deployments').check('list').allowed()",
        "!authorizer.serviceAccount('default', 'robot').path('/metrics').check('get').allowed()",
        "authorizer.group('').resource('configmaps').labelSelector('a=b').check('update').allowed()",
    ],
)
async def test_a_validation_asks_about_the_user_of_the_request(api, policy, binding, enforce, config, jane, expression):
    await enforce(policy(expression), binding())
    reply = await api.post(CONFIGS, config("one"), user=jane)
    assert reply.status == 201, reply.message


async def test_a_node_is_asked_about_with_its_field_selector(api, policy, binding, enforce, config):
    await enforce(
        policy(
            "authorizer.group('').resource('pods').fieldSelector('spec.nodeName=n1').check('list').allowed()",
            match={"resourceRules": [_rule("events")]},
        ),
        binding(),
    )
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}
    events = "/api/v1/namespaces/default/events"
    assert (await api.post(events, event, user=Certificate("system:node:n1", ("system:nodes",)))).status == 201
    reply = await api.post(events, event, user=Certificate("system:node:n2", ("system:nodes",)))
    assert reply.status == 422, reply.message


def _rule(resource):
    return {"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE"]}


@pytest.mark.parametrize("size", [1, 40_000], ids=["a small request", "a large request in the worker"])
async def test_a_permission_exempts_from_a_policy(api, policy, binding, enforce, config, jane, size):
    check = "authorizer.group('example.com').resource('policies').name('p').check('skip').allowed()"
    variables = [{"name": "exempt", "expression": check}]
    annotations = [{"key": "a", "valueExpression": f"string({check})"}]
    await enforce(policy("variables.exempt", variables=variables, auditAnnotations=annotations), binding())
    text = "x" * size
    assert (await api.post(CONFIGS, config("one", data=text), user=jane)).status == 422
    await grant(api, "exempt", USER, BREAK_GLASS)
    reply = await api.post(CONFIGS, config("one", data=text), user=jane)
    assert reply.status == 201, reply.message


async def test_a_match_condition_asks_too(api, policy, binding, enforce, config, jane):
    condition = {"name": "not-exempt", "expression": "!authorizer.requestResource.check('skip').allowed()"}
    await enforce(policy("false", matchConditions=[condition]), binding())
    assert (await api.post(CONFIGS, config("one"), user=jane)).status == 422
    assert (await api.post(CONFIGS, config("one"))).status == 201


async def test_a_mutation_asks_too(api, config, jane, rule):
    expression = (
        "Object{metadata: Object.metadata{annotations: "
        "{'may-delete': string(authorizer.requestResource.check('delete').allowed())}}}"
    )
    spec = {
        "matchConstraints": {"resourceRules": [rule("configmaps")]},
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        "reinvocationPolicy": "Never",
    }
    await api.made(f"{REGISTRATION}/mutatingadmissionpolicies", {"metadata": {"name": "m"}, "spec": spec})
    body = {"metadata": {"name": "m"}, "spec": {"policyName": "m"}}
    await api.made(f"{REGISTRATION}/mutatingadmissionpolicybindings", body)

    async def active():
        return api.assembled.mutating_policies.active.bound

    await answer_when(active, bool)
    ours = (await api.post(CONFIGS, config("one"))).body
    theirs = (await api.post(CONFIGS, config("two"), user=jane)).body
    assert ours["metadata"]["annotations"] == {"may-delete": "true"}
    assert theirs["metadata"]["annotations"] == {"may-delete": "false"}


async def test_a_webhooks_match_condition_asks_too(api, config, jane, rule):
    condition = {"name": "c", "expression": "!authorizer.requestResource.check('skip').allowed()"}
    hook = {
        "name": "w.example.com",
        "rules": [rule("configmaps")],
        "clientConfig": {"url": "https://127.0.0.1:1/nobody"},
        "matchConditions": [condition],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    await api.made(f"{REGISTRATION}/validatingwebhookconfigurations", {"metadata": {"name": "w"}, "webhooks": [hook]})

    async def active():
        return api.assembled.webhooks.validating.active

    await answer_when(active, bool)
    assert (await api.post(CONFIGS, config("one"))).status == 201
    reply = await api.post(CONFIGS, config("two"), user=jane)
    assert (reply.status, 'failed calling webhook "w.example.com"' in reply.message) == (500, True)
