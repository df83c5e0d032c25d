"""Defaults of what extends the API: webhooks, admission policies, custom resource definitions, API services."""

from typing import Any

HTTPS = 443


def _webhooks(obj: dict[str, Any]) -> None:
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


def _policy(obj: dict[str, Any]) -> None:
    obj["spec"].setdefault("failurePolicy", "Fail")
    _constraints(obj["spec"].get("matchConstraints"))


def _policy_binding(obj: dict[str, Any]) -> None:
    _constraints(obj["spec"].get("matchResources"))


def _constraints(resources: dict[str, Any] | None) -> None:
    if resources is not None:
        _match(resources)
        _scope(resources.get("resourceRules"))
        _scope(resources.get("excludeResourceRules"))


def _definition(obj: dict[str, Any]) -> None:
    """A CustomResourceDefinition; its status begins with the version that is stored."""
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind")
    if kind and not names.get("singular"):
        names["singular"] = kind.lower()
    if kind and not names.get("listKind"):
        names["listKind"] = f"{kind}List"
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service is not None:
        service.setdefault("port", HTTPS)
    status = obj.setdefault("status", {})
    if not status.get("storedVersions"):
        status["storedVersions"] = [each["name"] for each in spec.get("versions") or () if each.get("storage")][:1]


def _api_service(obj: dict[str, Any]) -> None:
    if (service := obj["spec"].get("service")) is not None:
        service.setdefault("port", HTTPS)


_GROUP = "admissionregistration.k8s.io"

DEFAULTS = {
    (_GROUP, "MutatingWebhookConfiguration"): _webhooks,
    (_GROUP, "ValidatingWebhookConfiguration"): _webhooks,
    (_GROUP, "MutatingAdmissionPolicy"): _policy,
    (_GROUP, "ValidatingAdmissionPolicy"): _policy,
    (_GROUP, "MutatingAdmissionPolicyBinding"): _policy_binding,
    (_GROUP, "ValidatingAdmissionPolicyBinding"): _policy_binding,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apiregistration.k8s.io", "APIService"): _api_service,
}
