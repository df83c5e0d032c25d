"""Policies in force: what is refused, warned of, noted, and let pass, by a whole API server."""

import logging

import msgspec
import pytest

from tests.apiserver.support import answer_when

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{GROUP}/validatingadmissionpolicies", f"{GROUP}/validatingadmissionpolicybindings"
CONFIGS = "/api/v1/namespaces/default/configmaps"
BLUE = "has(object.data) && object.data.color == 'blue'"


async def test_a_refusal_has_upstreams_message(api, policy, binding, enforce, config):
    await enforce(policy({"expression": BLUE, "message": "must be blue"}), binding())
    reply = await api.post(CONFIGS, config("one", color="red"))
    said = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: must be blue"
    assert reply.status == 422
    assert reply.body["reason"] == "Invalid"
    assert reply.message == f'configmaps "one" is forbidden: {said}'
    assert reply.body["details"] == {"name": "one", "kind": "configmaps", "causes": [{"message": said}]}
    assert (await api.get(f"{CONFIGS}/one")).status == 404
    assert (await api.post(CONFIGS, config("two", color="blue"))).status == 201


@pytest.mark.parametrize(
    ("validation", "code", "reason", "reported"),
    [
        pytest.param(
            {"expression": " object == null "}, 422, "Invalid", "failed expression: object == null", id="bare"
        ),
        pytest.param({"expression": "false", "message": " no "}, 422, "Invalid", "no", id="message"),
        pytest.param({"expression": "false", "reason": "Forbidden", "message": "no"}, 403, "Forbidden", "no", id="403"),
        pytest.param(
            {"expression": "false", "reason": "RequestEntityTooLarge", "message": "no"},
            413,
            "RequestEntityTooLarge",
            "no",
            id="413",
        ),
        pytest.param(
            {"expression": "false", "message": "no", "messageExpression": "'not ' + object.metadata.name"},
            422,
            "Invalid",
            "not one",
            id="message by expression",
        ),
        pytest.param(
            {"expression": "false", "message": "no", "messageExpression": "'two\\nlines'"},
            422,
            "Invalid",
            "no",
            id="message of two lines",
        ),
        pytest.param(
            {"expression": "false", "message": "no", "messageExpression": "string(object.data.missing)"},
            422,
            "Invalid",
            "no",
            id="message that fails",
        ),
        pytest.param(
            {"expression": "object.data.missing == 1"},
            422,
            "Invalid",
            "expression 'object.data.missing == 1' resulted in error: no such key: missing",
            id="an expression that fails",
        ),
    ],
)
async def test_the_message_of_a_validation(api, policy, binding, enforce, config, validation, code, reason, reported):
    await enforce(policy(validation), binding())
    reply = await api.post(CONFIGS, config("one", color="red"))
    assert (reply.status, reply.body["reason"]) == (code, reason)
    assert reply.message.endswith(f"denied request: {reported}")


async def test_the_first_failed_validation_is_reported(api, policy, binding, enforce, config):
    first, second = ({"expression": "false", "message": name} for name in ("first", "second"))
    await enforce(policy(first, second), binding())
    assert (await api.post(CONFIGS, config())).message.endswith("denied request: first")


async def test_warnings_come_with_the_answer_and_refuse_nothing(api, policy, binding, enforce, config):
    await enforce(policy({"expression": BLUE, "message": 'be "blue"'}), binding(actions=("Warn", "Audit")))
    reply = await api.post(CONFIGS, config("one", color="red"))
    assert reply.status == 201
    said = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': be \\\"blue\\\""
    assert reply.warnings == [f'299 - "{said}"']
    assert (await api.post(CONFIGS, config("two", color="blue"))).warnings == []


async def test_warnings_come_with_refusals_too(api, policy, binding, enforce, config):
    await enforce(policy({"expression": "false", "message": "hm"}, name="a"), binding("a", "a", ("Warn",)))
    await enforce(policy({"expression": "false", "message": "no"}, name="z"), binding("z", "z"))
    reply = await api.post(CONFIGS, config())
    assert reply.status == 422
    assert len(reply.warnings) == 1


async def test_audits_are_noted_in_the_log(api, policy, binding, enforce, config, caplog):
    caplog.set_level(logging.INFO, "podwire.apiserver.audit")
    annotations = [
        {"key": "color", "valueExpression": "'it is ' + object.data.color"},
        {"key": "nothing", "valueExpression": "''"},
    ]
    await enforce(
        policy({"expression": BLUE, "message": "no"}, auditAnnotations=annotations), binding(actions=("Audit",))
    )
    assert (await api.post(CONFIGS, config("one", color="red"))).status == 201
    failure, colors = (record.annotations for record in caplog.records if record.name == "podwire.apiserver.audit")
    assert failure == {
        "validation.policy.admission.k8s.io/validation_failure": '[{"message":"no","policy":"p","binding":"b",'
        '"expressionIndex":0,"validationActions":["Audit"]}]'
    }
    assert colors == {"p/color": "it is red"}


@pytest.mark.parametrize(("failure", "code"), [("Fail", 422), ("Ignore", 201)])
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"validations": [{"expression": "object.data.missing == 'x'"}]}, id="a validation"),
        pytest.param(
            {
                "matchConditions": [{"name": "c", "expression": "object.data.missing == 'x'"}],
                "validations": [{"expression": "false"}],
            },
            id="a condition",
        ),
        pytest.param(
            {"auditAnnotations": [{"key": "k", "valueExpression": "'' + object.data.missing"}]}, id="an annotation"
        ),
        pytest.param(
            {
                "variables": [{"name": "v", "expression": "object.data.missing"}],
                "validations": [{"expression": "variables.v == 'x'"}],
            },
            id="a variable",
        ),
        pytest.param(
            {
                "paramKind": {"apiVersion": "gone.example.com/v1", "kind": "Gone"},
                "validations": [{"expression": "true"}],
            },
            id="unknown parameters",
        ),
    ],
)
async def test_an_evaluation_error_follows_the_failure_policy(
    api, policy, binding, enforce, config, spec, failure, code
):
    await enforce(policy(failurePolicy=failure, **spec), binding(actions=("Deny",)))
    assert (await api.post(CONFIGS, config(color="red"))).status == code


async def test_a_condition_that_does_not_hold_outweighs_one_that_fails(api, policy, binding, enforce, config):
    conditions = [
        {"name": "fails", "expression": "object.data.missing == 'x'"},
        {"name": "holds-not", "expression": "request.name == 'other'"},
    ]
    await enforce(policy("false", matchConditions=conditions), binding())
    assert (await api.post(CONFIGS, config("one"))).status == 201
    assert (await api.post(CONFIGS, config("other"))).status == 422


async def test_variables_are_composed_and_only_fail_where_they_are_needed(api, policy, binding, enforce, config):
    variables = [
        {"name": "data", "expression": "has(object.data) ? object.data : {}"},
        {"name": "size", "expression": "quantity(variables.data.size)"},
        {"name": "large", "expression": "variables.size.isGreaterThan(quantity('1Gi'))"},
        {"name": "names", "expression": "variables.data.names.split(',')"},
    ]
    validations = [
        {"expression": "!has(variables.data.size) || !variables.large", "message": "too large"},
        {"expression": "!has(variables.data.names) || variables.names.all(n, n.size() < 3)", "message": "too long"},
    ]
    await enforce(policy(*validations, variables=variables), binding())
    assert (await api.post(CONFIGS, config("none"))).status == 201
    assert (await api.post(CONFIGS, config("small", size="1Mi"))).status == 201
    assert (await api.post(CONFIGS, config("large", size="2Gi"))).message.endswith("too large")
    assert (await api.post(CONFIGS, config("short", names="a,bc"))).status == 201
    assert (await api.post(CONFIGS, config("long", names="a,bcd"))).message.endswith("too long")
    broken = await api.post(CONFIGS, config("broken", size="huge"))
    assert 'composited variable "large" fails to evaluate: composited variable "size" fails' in broken.message


@pytest.mark.parametrize(
    "expression",
    [
        "oldObject == null && object.kind == 'ConfigMap'",
        "request.operation == 'CREATE' && request.name == 'one' && request.namespace == 'default'",
        "request.kind.kind == 'ConfigMap' && request.kind.version == 'v1' && request.kind.group == ''",
        "request.resource.resource == 'configmaps' && request.requestResource.resource == 'configmaps'",
        "!has(request.subResource) && !has(request.requestSubResource)",
        "request.userInfo.username == 'kubernetes-admin' && 'system:masters' in request.userInfo.groups",
        "!request.dryRun && request.options.kind == 'CreateOptions'",
        "namespaceObject.metadata.name == 'default' && namespaceObject.status.phase == 'Active'",
        "namespaceObject.metadata.creationTimestamp > timestamp('2001-01-01T00:00:00Z')",
        "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == 'default'",
        "namespaceObject.metadata.UID.size() == 36",
        "object.metadata.uid.size() == 36 && has(object.metadata.creationTimestamp)",
    ],
)
async def test_expressions_see_the_request(api, policy, binding, enforce, config, expression):
    await enforce(policy({"expression": expression, "message": "no"}), binding())
    reply = await api.post(CONFIGS, config("one", color="red"))
    assert reply.status == 201, reply.message


async def test_updates_see_the_old_object(api, policy, binding, enforce, config):
    expression = "oldObject == null || object.data.color == oldObject.data.color"
    await enforce(policy({"expression": expression, "message": "for good"}), binding())
    await api.made(CONFIGS, config("one", color="red"))
    assert (await api.patch(f"{CONFIGS}/one", {"data": {"size": "1"}})).status == 200
    assert (await api.patch(f"{CONFIGS}/one", {"data": {"color": "blue"}})).message.endswith("for good")
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"color": "blue"}}
    reply = await api.patch(f"{CONFIGS}/one?fieldManager=m&force=true", applied, "apply")
    assert reply.message.endswith("for good")
    assert (await api.get(f"{CONFIGS}/one")).body["data"] == {"color": "red", "size": "1"}


async def test_deletions_are_validated_with_the_old_object(api, policy, binding, enforce, config, rule):
    match = {"resourceRules": [rule("configmaps", operations=("DELETE",))]}
    validation = {"expression": "object == null && oldObject.data.keep == 'no'", "message": "kept"}
    await enforce(policy(validation, match=match), binding())
    await api.made(CONFIGS, config("kept", keep="yes"))
    await api.made(CONFIGS, config("free", keep="no"))
    assert (await api.delete(f"{CONFIGS}/kept")).message.endswith("kept")
    assert (await api.delete(f"{CONFIGS}/free")).status == 200
    assert (await api.delete(CONFIGS)).message.endswith("kept")


async def test_a_dry_run_is_validated_too(api, policy, binding, enforce, config):
    await enforce(policy("!request.dryRun"), binding())
    assert (await api.post(f"{CONFIGS}?dryRun=All", config())).status == 422
    assert (await api.post(CONFIGS, config())).status == 201


async def test_names_that_are_generated_are_known(api, policy, binding, enforce):
    await enforce(policy("request.name.startsWith('gen-') && request.name.size() == 9"), binding())
    assert (await api.post(CONFIGS, {"metadata": {"generateName": "gen-"}})).status == 201


async def test_validation_comes_first(api, policy, binding, enforce, config):
    await enforce(policy("false"), binding())
    reply = await api.post(CONFIGS, {"metadata": {"name": "no!"}})
    assert "metadata.name: Invalid value" in reply.message


async def test_a_policy_without_binding_and_a_binding_without_policy_do_nothing(api, policy, binding, enforce, config):
    await enforce(policy("false"))
    await api.made(BINDINGS, binding(policy="other"))
    assert (await api.post(CONFIGS, config())).status == 201


async def test_a_deleted_policy_is_not_enforced(api, policy, binding, enforce, config):
    await enforce(policy("false"), binding())
    assert (await api.post(CONFIGS, config())).status == 422
    await api.delete(f"{BINDINGS}/b")
    await answer_when(lambda: api.post(CONFIGS, config()), lambda reply: reply.status == 201)


async def test_a_policy_that_is_changed_holds_as_it_is_now(api, policy, binding, enforce, config):
    await enforce(policy("false"), binding())
    change = {"spec": {"validations": [{"expression": "true"}]}}
    assert (await api.patch(f"{POLICIES}/p", change)).status == 200
    await answer_when(lambda: api.post(CONFIGS, config()), lambda reply: reply.status == 201)
    seen = await answer_when(
        lambda: api.get(f"{POLICIES}/p"), lambda reply: reply.body["status"].get("observedGeneration") == 2
    )
    assert seen.body["metadata"]["generation"] == 2


async def test_policies_do_not_apply_to_policies_and_bindings(api, policy, binding, enforce, rule):
    await enforce(policy("false", match={"resourceRules": [rule("*/*", operations=("*",))]}), binding())
    assert (await api.post(POLICIES, policy("true", name="other"))).status == 201
    assert (await api.delete(f"{BINDINGS}/b")).status == 200


async def test_policies_are_in_force_when_a_server_starts(serve, api, policy, binding, enforce, config):
    await enforce(policy("false"), binding())
    other = await serve(api.store)
    assert (await other.post(CONFIGS, config())).status == 422


async def test_too_much_work_is_refused(api, policy, binding, enforce, config):
    letters = "object.data.text.split('')"
    many = f"{letters}.all(a, {letters}.all(b, {letters}.all(c, a + b != c)))"
    await enforce(policy(many), binding())
    reply = await api.post(CONFIGS, config("one", text="x" * 2000))
    assert "running out of cost budget" in reply.message


async def test_the_servers_own_writes_are_not_validated(api, policy, binding, enforce, rule, definition):
    match = {
        "resourceRules": [rule("customresourcedefinitions", "customresourcedefinitions/status", operations=("*",))]
    }
    await enforce(policy("request.operation == 'CREATE'", match=match), binding())
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    made = await api.made(path, definition())
    assert (
        await api.patch(f"{path}/{made['metadata']['name']}/status", {"status": {"storedVersions": ["v1"]}})
    ).status == 422
    await answer_when(lambda: api.get("/apis/example.com/v1/widgets"), lambda reply: reply.status == 200)


async def test_texts_that_cannot_be_evaluated_are_refused(api, policy, binding, enforce, config):
    await enforce(policy("object.data.size() >= 0"), binding())
    reply = await api.post(CONFIGS, config("one", text="a\0b"))
    assert (reply.status, "NUL" in reply.message) == (422, True)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param({"validations": [{"expression": "nope("}]}, "compilation error", id="a validation"),
        pytest.param(
            {"validations": [{"expression": "variables.v"}], "variables": [{"name": "v", "expression": "nope("}]},
            'composited variable "v" fails to compile',
            id="a variable",
        ),
    ],
)
async def test_a_stored_policy_that_does_not_compile_fails_closed(serve, api, policy, binding, config, spec, said):
    metadata = {"name": "p", "uid": "u", "creationTimestamp": "2024-01-01T00:00:00Z", "generation": 1}
    for name, reported in (("p", policy(**spec)["spec"]), ("none", {})):
        stored = {"kind": "ValidatingAdmissionPolicy", "apiVersion": "admissionregistration.k8s.io/v1"}
        whole = {**stored, "metadata": {**metadata, "name": name}, "spec": reported}
        await api.store.create(f"/registry/validatingadmissionpolicies/{name}", msgspec.json.encode(whole))
    await api.made(BINDINGS, binding())
    other = await serve(api.store)
    reply = await other.post(CONFIGS, config())
    assert (reply.status, said in reply.message) == (422, True), reply.message
