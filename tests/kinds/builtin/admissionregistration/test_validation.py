"""ValidatingAdmissionPolicy and its binding: what is wrong with them, in upstream's words."""

import pytest

from podwire.kinds.builtin.admissionregistration import strategy, validating_binding, validating_policy

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
MATCH = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": [RULE]}
SPEC = {"failurePolicy": "Fail", "matchConstraints": MATCH, "validations": [{"expression": "true"}]}
BINDING = {"policyName": "p", "validationActions": ["Deny"]}


def policy(**spec):
    return {"metadata": {"name": "p"}, "spec": {**SPEC, **spec}}


def rules(**given):
    return policy(matchConstraints={**MATCH, "resourceRules": [{**RULE, **given}]})


def texts(errors):
    return [str(error) for error in errors]


def test_a_policy_with_everything_is_valid():
    whole = policy(
        paramKind={"apiVersion": "rules.example.com/v1", "kind": "Limit"},
        matchConditions=[{"name": "not-mine", "expression": "request.userInfo.username != params.spec.name"}],
        variables=[
            {"name": "names", "expression": "object.spec.containers.map(c, c.name)"},
            {"name": "many", "expression": "size(variables.names) > 3"},
        ],
        validations=[
            {
                "expression": "!variables.many || namespaceObject.metadata.name == 'big'",
                "message": "too many",
                "messageExpression": "'too many: ' + string(size(variables.names)) + ' ' + params.metadata.name",
                "reason": "Forbidden",
            }
        ],
        auditAnnotations=[{"key": "count", "valueExpression": "string(size(variables.names))"}],
    )
    assert texts(validating_policy.create(whole)) == []
    assert texts(strategy.VALIDATING_POLICY.validate_update(whole, policy())) == []


NOTHING = "Required value: validations or auditAnnotations must contain at least one item"


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        pytest.param(
            policy(failurePolicy="Maybe"),
            ['spec.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore"'],
            id="failurePolicy",
        ),
        pytest.param(policy(matchConstraints=None), ["spec.matchConstraints: Required value"], id="no constraints"),
        pytest.param(
            policy(matchConstraints={**MATCH, "resourceRules": []}),
            ["spec.matchConstraints.resourceRules: Required value"],
            id="no rules",
        ),
        pytest.param(
            policy(validations=[]), [f"spec.validations: {NOTHING}", f"spec.auditAnnotations: {NOTHING}"], id="empty"
        ),
        pytest.param(
            policy(paramKind={}),
            ["spec.paramKind.apiVersion: Required value", "spec.paramKind.kind: Required value"],
            id="no paramKind",
        ),
        pytest.param(
            policy(paramKind={"apiVersion": "a/b/c", "kind": "K"}),
            ['spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'],
            id="a version of three parts",
        ),
        pytest.param(
            policy(paramKind={"apiVersion": "a/", "kind": "K"}),
            ['spec.paramKind.apiVersion: Invalid value: "a/": version must be specified'],
            id="a group without version",
        ),
        pytest.param(
            rules(operations=["*", "CREATE"]),
            [
                (
                    'spec.matchConstraints.resourceRules[0].operations: Invalid value: ["*","CREATE"]: '
                    "if '*' is present, must not specify other operations"
                )
            ],
            id="all operations and another",
        ),
        pytest.param(
            rules(operations=["PATCH"]),
            [
                (
                    'spec.matchConstraints.resourceRules[0].operations[0]: Unsupported value: "PATCH": '
                    'supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"'
                )
            ],
            id="no operation",
        ),
        pytest.param(
            rules(apiGroups=[], apiVersions=[""], resources=[]),
            [
                "spec.matchConstraints.resourceRules[0].apiGroups: Required value",
                "spec.matchConstraints.resourceRules[0].apiVersions[0]: Required value",
                "spec.matchConstraints.resourceRules[0].resources: Required value",
            ],
            id="nothing in a rule",
        ),
        pytest.param(
            rules(resources=["*", "pods"]),
            [
                (
                    'spec.matchConstraints.resourceRules[0].resources: Invalid value: ["*","pods"]: '
                    "if '*' is present, must not specify other resources without subresources"
                )
            ],
            id="all resources and another",
        ),
        pytest.param(
            rules(resources=["pods/*", "pods/exec"]),
            [
                (
                    'spec.matchConstraints.resourceRules[0].resources[1]: Invalid value: "pods/exec": '
                    "if 'pods/*' is present, must not specify pods/exec"
                )
            ],
            id="all parts and another",
        ),
        pytest.param(
            rules(resources=["*/exec", "pods/exec", "*/*"]),
            [
                (
                    'spec.matchConstraints.resourceRules[0].resources[1]: Invalid value: "pods/exec": '
                    "if '*/exec' is present, must not specify pods/exec"
                ),
                (
                    'spec.matchConstraints.resourceRules[0].resources: Invalid value: ["*/exec","pods/exec","*/*"]: '
                    "if '*/*' is present, must not specify other resources"
                ),
            ],
            id="a part of all and another",
        ),
        pytest.param(
            rules(resourceNames=["a", "a", "b/c"]),
            [
                'spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: "a"',
                "spec.matchConstraints.resourceRules[0].resourceNames[2]: Invalid value: \"b/c\": may not contain '/'",
            ],
            id="names",
        ),
        pytest.param(
            rules(scope="World"),
            [
                (
                    'spec.matchConstraints.resourceRules[0].scope: Unsupported value: "World": '
                    'supported values: "*", "Cluster", "Namespaced"'
                )
            ],
            id="scope",
        ),
        pytest.param(
            policy(matchConditions=[{"name": "", "expression": " "}, {"name": "a b", "expression": "true"}]),
            [
                "spec.matchConditions[0].expression: Required value",
                "spec.matchConditions[0].name: Required value",
                'spec.matchConditions[1].name: Invalid value: "a b": name part must consist of alphanumeric',
            ],
            id="conditions without name",
        ),
        pytest.param(
            policy(matchConditions=[{"name": "a", "expression": "1"}, {"name": "a", "expression": "variables.x"}]),
            [
                'spec.matchConditions[0].expression: Invalid value: "1": must evaluate to bool but got int',
                (
                    'spec.matchConditions[1].expression: Invalid value: "variables.x": compilation failed: '
                    "ERROR: <input>:1:10: undeclared reference to 'variables.x'"
                ),
                'spec.matchConditions[1].name: Duplicate value: "a"',
            ],
            id="conditions of the same name",
        ),
        pytest.param(
            policy(matchConditions=[{"name": f"n{number}", "expression": "true"} for number in range(65)]),
            ["spec.matchConditions: Too many: 65: must have at most 64 items"],
            id="too many conditions",
        ),
        pytest.param(
            policy(variables=[{"name": "a.b", "expression": "1"}, {"name": "\U0001f600", "expression": "(a+)+$"}]),
            [
                'spec.variables[0].name: Invalid value: "a.b": name is not a valid CEL identifier',
                'spec.variables[1].name: Invalid value: "\U0001f600": name is not a valid CEL identifier',
                'spec.variables[1].expression: Invalid value: "(a+)+$": compilation failed: ERROR',
            ],
            id="variables whose names are not identifiers",
        ),
        pytest.param(
            policy(variables=[{"name": "in", "expression": "1"}, {"name": "", "expression": ""}]),
            [
                'spec.variables[0].name: Invalid value: "in": name is not a valid CEL identifier',
                "spec.variables[1].name: Required value: name is not specified",
                "spec.variables[1].expression: Required value: expression is not specified",
            ],
            id="variables without a name",
        ),
        pytest.param(
            policy(variables=[{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]),
            [
                (
                    'spec.variables[0].expression: Invalid value: "variables.b": compilation failed: '
                    "ERROR: <input>:1:10: undefined field 'b'"
                )
            ],
            id="a variable before it is there",
        ),
        pytest.param(
            policy(variables=[{"name": "a", "expression": "object.?b"}]),
            [
                (
                    'spec.variables[0].expression: Invalid value: "object.?b": '
                    "a variable cannot be of type optional_type(dyn)"
                )
            ],
            id="an optional variable",
        ),
        pytest.param(
            policy(
                variables=[{"name": "a", "expression": "'text'"}], validations=[{"expression": "variables.a + 1 == 2"}]
            ),
            [
                (
                    'spec.validations[0].expression: Invalid value: "variables.a + 1 == 2": compilation failed: '
                    "ERROR: <input>:1:13: found no matching overload for '_+_'"
                )
            ],
            id="a variable of another type",
        ),
        pytest.param(
            policy(validations=[{"expression": "object.spec.on"}, {"expression": ""}]),
            [
                'spec.validations[0].expression: Invalid value: "object.spec.on": must evaluate to bool but got dyn',
                "spec.validations[1].expression: Required value: expression is not specified",
            ],
            id="no boolean",
        ),
        pytest.param(
            policy(validations=[{"expression": "request.nope == 'x' && (", "message": "a\nb", "reason": "Gone"}]),
            [
                "spec.validations[0].expression: Invalid value: \"request.nope == 'x' && (\": compilation failed",
                'spec.validations[0].message: Invalid value: "a\\nb": message must not contain line breaks',
                (
                    'spec.validations[0].reason: Unsupported value: "Gone": '
                    'supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"'
                ),
            ],
            id="a validation that is none",
        ),
        pytest.param(
            policy(validations=[{"expression": "true", "message": " ", "messageExpression": " "}]),
            [
                'spec.validations[0].messageExpression: Invalid value: " ": must be non-empty if specified',
                'spec.validations[0].message: Invalid value: " ": message must be non-empty if specified',
            ],
            id="empty messages",
        ),
        pytest.param(
            policy(validations=[{"expression": "true", "messageExpression": "1"}]),
            ['spec.validations[0].messageExpression: Invalid value: "1": must evaluate to string but got int'],
            id="a message that is a number",
        ),
        pytest.param(
            policy(validations=[{"expression": "params.x == 1"}]),
            [
                (
                    'spec.validations[0].expression: Invalid value: "params.x == 1": compilation failed: '
                    "ERROR: <input>:1:7: undeclared reference to 'params.x'"
                )
            ],
            id="parameters that there are none of",
        ),
        pytest.param(
            policy(validations=[{"expression": "authorizer.group('').resource('pods').check('get').allowed()"}]),
            [],
            id="the authorizer",
        ),
        pytest.param(
            policy(validations=[{"expression": "authorizer.resource('pods').check('get').allowed()"}]),
            [
                (
                    "spec.validations[0].expression: Invalid value: "
                    "\"authorizer.resource('pods').check('get').allowed()\": compilation failed: "
                    "ERROR: <input>:1:20: found no matching overload for 'resource'"
                )
            ],
            id="the authorizer without a group",
        ),
        pytest.param(
            policy(validations=[{"expression": "authorizer.path('/x').check('get')"}]),
            [
                (
                    "spec.validations[0].expression: Invalid value: \"authorizer.path('/x').check('get')\": "
                    "must evaluate to bool"
                )
            ],
            id="a decision of the authorizer",
        ),
        pytest.param(
            policy(
                validations=[
                    {"expression": "false", "messageExpression": "authorizer.path('/x').check('get').reason()"}
                ]
            ),
            [
                (
                    "spec.validations[0].messageExpression: Invalid value: "
                    "\"authorizer.path('/x').check('get').reason()\": compilation failed: "
                    "ERROR: <input>:1:1: undeclared reference to 'authorizer'"
                )
            ],
            id="the authorizer in a message",
        ),
        pytest.param(
            policy(auditAnnotations=[{"key": "a b", "valueExpression": "1"}, {"key": "c", "valueExpression": ""}]),
            [
                'spec.auditAnnotations[0].key: Invalid value: "p/a b": name part must consist of alphanumeric',
                (
                    'spec.auditAnnotations[0].valueExpression: Invalid value: "1": '
                    "must evaluate to one of [string null_type] but got int"
                ),
                "spec.auditAnnotations[1].valueExpression: Required value: valueExpression is not specified",
            ],
            id="annotations",
        ),
        pytest.param(
            policy(auditAnnotations=[{"key": "a", "valueExpression": "''"}] * 2),
            ['spec.auditAnnotations[1].key: Duplicate value: "a"'],
            id="annotations of the same name",
        ),
    ],
)
def test_invalid_policies_are_rejected(given, errors):
    found = texts(validating_policy.create(given))
    assert len(found) == len(errors), found
    for each, wanted in zip(found, errors, strict=True):
        assert each.startswith(wanted)


def test_a_warning_in_the_status_needs_text_and_field():
    status = {"typeChecking": {"expressionWarnings": [{"warning": "", "fieldRef": " "}]}}
    assert texts(validating_policy.update_status({"status": status}, {})) == [
        "status.typeChecking.expressionWarnings[0].warning: Required value",
        "status.typeChecking.expressionWarnings[0].fieldRef: Required value",
    ]


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        pytest.param({}, [], id="right"),
        pytest.param(
            {"paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}, "matchResources": MATCH},
            [],
            id="all of it",
        ),
        pytest.param({"policyName": ""}, ["spec.policyName: Required value"], id="no policy"),
        pytest.param({"policyName": "P"}, ['spec.policyName: Invalid value: "P": a lowercase RFC 1123'], id="a name"),
        pytest.param(
            {"paramRef": {}},
            [
                "spec.paramRef: Required value: one of name or selector must be specified",
                "spec.paramRef.parameterNotFoundAction: Required value",
            ],
            id="no parameters",
        ),
        pytest.param(
            {"paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Panic"}},
            [
                "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
                'spec.paramRef.parameterNotFoundAction: Unsupported value: "Panic": supported values: "Deny", "Allow"',
            ],
            id="two kinds of parameters",
        ),
        pytest.param(
            {"validationActions": []},
            ["spec.validationActions: Required value: at least one validation action is required"],
            id="no action",
        ),
        pytest.param(
            {"validationActions": ["Deny", "Warn", "Warn", "Shout"]},
            [
                'spec.validationActions[2]: Duplicate value: "Warn"',
                'spec.validationActions[3]: Unsupported value: "Shout": supported values: "Audit", "Deny", "Warn"',
                'spec.validationActions: Invalid value: ["Deny","Warn","Warn","Shout"]: must not contain both',
            ],
            id="actions",
        ),
        pytest.param(
            {"matchResources": {**MATCH, "matchPolicy": "Some", "objectSelector": None}},
            [
                'spec.matchResources.matchPolicy: Unsupported value: "Some": supported values: "Equivalent", "Exact"',
                "spec.matchResources.objectSelector: Required value",
            ],
            id="resources",
        ),
    ],
)
def test_invalid_bindings_are_rejected(spec, errors):
    found = texts(validating_binding.create({"metadata": {"name": "b"}, "spec": {**BINDING, **spec}}))
    assert len(found) == len(errors), found
    for each, wanted in zip(found, errors, strict=True):
        assert each.startswith(wanted)
