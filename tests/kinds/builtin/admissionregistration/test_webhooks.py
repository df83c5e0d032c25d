"""Webhook configurations: what is wrong with them, in upstream's words."""

from typing import Any

import pytest

from podwire.kinds.builtin.admissionregistration import strategy, webhooks

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
WEBHOOK: dict[str, Any] = {
    "name": "hook.example.com",
    "clientConfig": {"url": "https://example.com/validate"},
    "rules": [RULE],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
FORM = "; desired format: https://host[/path]"


def errors_of(**given: Any) -> list[str]:
    return [str(error) for error in webhooks.create({"webhooks": [{**WEBHOOK, **given}]})]


def service(**given: Any) -> dict[str, Any]:
    return {"service": {"namespace": "n", "name": "s", "port": 443, **given}}


def test_a_webhook_with_everything_is_valid():
    conditions = [{"name": "c", "expression": "request.userInfo.username != 'x'"}]
    assert errors_of(matchConditions=conditions, timeoutSeconds=30, clientConfig=service(path="/a/b")) == []
    assert webhooks.create({"webhooks": []}) == []


def test_defaults_are_those_of_upstream():
    obj = {"kind": "MutatingWebhookConfiguration", "webhooks": [{**WEBHOOK, "clientConfig": {"service": {}}}]}
    strategy.default_webhooks(obj)
    webhook = obj["webhooks"][0]
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"], webhook["matchPolicy"]) == ("Fail", 10, "Equivalent")
    assert (webhook["reinvocationPolicy"], webhook["clientConfig"]["service"]["port"]) == ("Never", 443)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": ""}, "webhooks[0].name: Required value"),
        (
            {"name": "short.com"},
            (
                'webhooks[0].name: Invalid value: "short.com": should be a domain with at least three segments '
                "separated by dots"
            ),
        ),
        ({"sideEffects": None}, "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"),
        (
            {"sideEffects": "Some"},
            'webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
        ),
        (
            {"timeoutSeconds": 31},
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            {"admissionReviewVersions": ["v9"]},
            'webhooks[0].admissionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1',
        ),
        (
            {"admissionReviewVersions": []},
            "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
        ),
        (
            {"clientConfig": {}},
            "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
        ),
        (
            {"clientConfig": {"url": "http://example.com"}},
            f"webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme{FORM}",
        ),
        (
            {"clientConfig": {"url": "https://example.com/?a=b"}},
            'webhooks[0].clientConfig.url: Invalid value: "a=b": query parameters are not permitted in the URL',
        ),
        (
            {"clientConfig": service(path="//")},
            'webhooks[0].clientConfig.service.path: Invalid value: "//": segment[0] may not be empty',
        ),
        (
            {"clientConfig": service(port=0)},
            (
                "webhooks[0].clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and "
                "65535, inclusive"
            ),
        ),
        (
            {"reinvocationPolicy": "Often"},
            'webhooks[0].reinvocationPolicy: Unsupported value: "Often": supported values: "IfNeeded", "Never"',
        ),
        ({"rules": [{**RULE, "operations": []}]}, "webhooks[0].rules[0].operations: Required value"),
    ],
)
def test_errors_are_in_upstream_s_words(given, error):
    assert errors_of(**given) == [error]


def test_names_of_one_configuration_differ():
    errors = webhooks.create({"webhooks": [WEBHOOK, WEBHOOK]})
    assert [str(error) for error in errors] == ['webhooks[1].name: Duplicate value: "hook.example.com"']


def test_a_condition_that_does_not_compile_is_an_error():
    errors = errors_of(matchConditions=[{"name": "c", "expression": "nonsense("}])
    assert len(errors) == 1
    assert "compilation failed" in errors[0]
