"""The kinds of admissionregistration.k8s.io."""

from typing import Any

from podwire.kinds.builtin.admissionregistration import (
    mutating_policy,
    validating_binding,
    validating_policy,
    webhooks,
)
from podwire.kinds.strategy import Strategy, as_on_create
from podwire.kinds.tables import UNSET, Json, Row, age_of, count, name_of, part, selector_text, text

HTTPS = 443


def default_webhooks(obj: dict[str, Any]) -> None:
    mutating = obj.get("kind") == "MutatingWebhookConfiguration"
    for webhook in obj.get("webhooks") or ():
        webhook.setdefault("failurePolicy", "Fail")
        _match(webhook)
        webhook.setdefault("timeoutSeconds", 10)
        if mutating:
            webhook.setdefault("reinvocationPolicy", "Never")
        service = webhook.setdefault("clientConfig", {}).get("service")
        if service is not None:
            service.setdefault("port", HTTPS)
        _scope(webhook.get("rules"))


def _match(part: dict[str, Any]) -> None:
    part.setdefault("matchPolicy", "Equivalent")
    part.setdefault("namespaceSelector", {})
    part.setdefault("objectSelector", {})


def _scope(rules: list[dict[str, Any]] | None) -> None:
    for rule in rules or ():
        rule.setdefault("scope", "*")


def default_policy(obj: dict[str, Any]) -> None:
    obj["spec"].setdefault("failurePolicy", "Fail")
    _constraints(obj["spec"].get("matchConstraints"))


def default_binding(obj: dict[str, Any]) -> None:
    _constraints(obj["spec"].get("matchResources"))


def _constraints(resources: dict[str, Any] | None) -> None:
    if resources is not None:
        _match(resources)
        _scope(resources.get("resourceRules"))
        _scope(resources.get("excludeResourceRules"))


def webhooks_row(obj: Json, now: float) -> list[Any]:
    return [name_of(obj), count(obj, "webhooks"), age_of(obj, now)]


def _policy_row(rules: str) -> Row:
    def policy(obj: Json, now: float) -> list[Any]:
        spec = part(obj, "spec")
        params = part(spec, "paramKind")
        param_kind = f"{text(params, 'apiVersion')}/{text(params, 'kind')}" if params else UNSET
        return [name_of(obj), count(spec, rules), param_kind, age_of(obj, now)]

    return policy


def binding_row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [name_of(obj), text(spec, "policyName"), _params(part(spec, "paramRef")), age_of(obj, now)]


def _params(reference: Json) -> str:
    if named := text(reference, "name"):
        return f"{text(reference, 'namespace', '*')}/{named}"
    return selector_text(reference, "selector", empty=UNSET)


def _webhooks(kind: str) -> Strategy:
    return Strategy(
        group="admissionregistration.k8s.io",
        kind=kind,
        qualified_finalizers=False,
        default=default_webhooks,
        allow_unconditional_update=False,
        counts_generation=True,
        validate_create=webhooks.create,
        validate_update=as_on_create(webhooks.create),
        columns="Name|Webhooks#|Age",
        row=webhooks_row,
    )


MUTATING_WEBHOOKS = _webhooks("MutatingWebhookConfiguration")
VALIDATING_WEBHOOKS = _webhooks("ValidatingWebhookConfiguration")

MUTATING_POLICY = Strategy(
    group="admissionregistration.k8s.io",
    kind="MutatingAdmissionPolicy",
    qualified_finalizers=False,
    parts={"spec": {}},
    default=default_policy,
    allow_unconditional_update=False,
    counts_generation=True,
    validate_create=mutating_policy.create,
    validate_update=as_on_create(mutating_policy.create),
    columns="Name|Mutations#|ParamKind|Age",
    row=_policy_row("mutations"),
)

MUTATING_BINDING = Strategy(
    group="admissionregistration.k8s.io",
    kind="MutatingAdmissionPolicyBinding",
    qualified_finalizers=False,
    parts={"spec": {}},
    default=default_binding,
    allow_unconditional_update=False,
    counts_generation=True,
    validate_create=mutating_policy.create_binding,
    validate_update=as_on_create(mutating_policy.create_binding),
    columns="Name|PolicyName|ParamRef|Age",
    row=binding_row,
)

VALIDATING_POLICY = Strategy(
    group="admissionregistration.k8s.io",
    kind="ValidatingAdmissionPolicy",
    qualified_finalizers=False,
    parts={"spec": {}, "status": {}},
    default=default_policy,
    allow_unconditional_update=False,
    counts_generation=True,
    validate_create=validating_policy.create,
    validate_update=as_on_create(validating_policy.create),
    validate_subresources={"status": validating_policy.update_status},
    columns="Name|Validations#|ParamKind|Age",
    row=_policy_row("validations"),
)

VALIDATING_BINDING = Strategy(
    group="admissionregistration.k8s.io",
    kind="ValidatingAdmissionPolicyBinding",
    qualified_finalizers=False,
    parts={"spec": {}},
    default=default_binding,
    allow_unconditional_update=False,
    counts_generation=True,
    validate_create=validating_binding.create,
    validate_update=as_on_create(validating_binding.create),
    columns="Name|PolicyName|ParamRef|Age",
    row=binding_row,
)
