"""The authorization library: what an expression asks, and the types of its parts."""

import pytest

from podwire.protocols.cel import CelError, CompileError, compile_expression
from podwire.protocols.cel.admission import AUTHORIZATION, REQUEST_RESOURCE
from podwire.protocols.cel.environment import kept
from podwire.protocols.cel.functions.authorization import (
    FUNCTIONS,
    PathCheck,
    Principal,
    ResourceCheck,
    Verdict,
    asking,
)

JANE = Principal("jane", "7", ("devs",), {"team": ("a", "b")})
ACCOUNT = Principal("system:serviceaccount:ns:web", "", ("system:serviceaccounts", "system:serviceaccounts:ns"))
ALLOWED = Verdict(True, "because")
REQUESTED = ResourceCheck(JANE, "apps", "deployments", "scale", "ns", "web")


def evaluated(expression, answer=ALLOWED):
    """The value of an expression, and what the authorizer was asked."""
    asked = []

    def ask(check, verb):
        asked.append((check, verb))
        return answer

    program = compile_expression(expression, AUTHORIZATION, functions=FUNCTIONS)
    with asking(ask):
        value = program.run({"authorizer": kept(JANE), REQUEST_RESOURCE: kept(REQUESTED)})
    return value, asked


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ("path('/healthz').check('get')", (PathCheck(JANE, "/healthz"), "get")),
        ("group('').resource('pods').check('list')", (ResourceCheck(JANE, "", "pods"), "list")),
        (
            "group('apps').resource('deployments').subresource('scale').namespace('ns').name('web').check('update')",
            (ResourceCheck(JANE, "apps", "deployments", "scale", "ns", "web"), "update"),
        ),
        (
            "group('').resource('pods').fieldSelector('spec.nodeName=n1').labelSelector('a=b').check('list')",
            (
                ResourceCheck(JANE, "", "pods", field_selector="spec.nodeName=n1", label_selector="a=b"),
                "list",
            ),
        ),
        ("serviceAccount('ns', 'web').path('/x').check('get')", (PathCheck(ACCOUNT, "/x"), "get")),
        ("requestResource.check('custom')", (REQUESTED, "custom")),
        (
            "requestResource.name('other').check('get')",
            (ResourceCheck(JANE, "apps", "deployments", "scale", "ns", "other"), "get"),
        ),
    ],
)
def test_a_check_asks_about_the_principal(check, expected):
    assert evaluated(f"authorizer.{check}.allowed()") == (True, [expected])


@pytest.mark.parametrize(
    ("function", "of_allowed", "of_denied"),
    [("allowed", True, False), ("reason", "because", ""), ("errored", False, False), ("error", "", "")],
)
def test_a_decision_is_read_by(function, of_allowed, of_denied):
    expression = f"authorizer.path('/').check('get').{function}()"
    assert evaluated(expression)[0] == of_allowed
    assert evaluated(expression, Verdict(False))[0] == of_denied


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("path(' ').check('get').allowed()", "path must not be empty"),
        ("group('').resource('').check('get').allowed()", "resource must not be empty"),
        ("serviceAccount('ns', 'a@b').path('/').check('get').allowed()", "Invalid service account name"),
        ("serviceAccount('n.s', 'web').path('/').check('get').allowed()", "Invalid service account namespace"),
    ],
)
def test_an_impossible_check_is_an_error(expression, why):
    value, asked = evaluated(f"authorizer.{expression}")
    assert isinstance(value, CelError)
    assert (why in str(value), asked) == (True, [])


@pytest.mark.parametrize(
    "expression",
    [
        "authorizer.resource('pods')",
        "authorizer.group('').check('get')",
        "authorizer.path('/x').namespace('ns')",
        "authorizer.group('').resource('pods').allowed()",
        "authorizer.path(1)",
        "authorizer.user",
    ],
)
def test_parts_in_the_wrong_order_do_not_compile(expression):
    with pytest.raises(CompileError):
        compile_expression(expression, AUTHORIZATION, functions=FUNCTIONS)
