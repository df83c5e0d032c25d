"""Webhooks of a configuration, compiled from their stored form."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podwire.kinds.policies.matching import Constraints, constraints
from podwire.kinds.policies.policy import Compiler, Policy

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Where a webhook is: a URL, or a Service; `ca` is PEM text, empty for the system's authorities."""

    url: str = ""
    service: tuple[str, str, int, str] | None = None
    """Namespace, name, port and path."""
    ca: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One webhook, ready to be matched and called."""

    id: str
    name: str
    configuration: str
    constraints: Constraints
    conditions: Policy | None
    """The match conditions, as a policy that has nothing else; None without any."""
    fails: bool
    """A webhook that cannot be called denies the request."""
    seconds: float
    dry_run: bool
    """It has no side effects, at least not in a dry run."""
    review_version: str
    """The AdmissionReview that it is sent; empty if it understands none that we have."""
    reinvoked: bool
    client: ClientConfig


def webhooks_of(obj: Json) -> tuple[Webhook, ...]:
    """Returns the webhooks of a stored configuration that match anything; raises ValueError for an invalid selector."""
    name = obj["metadata"]["name"]
    return tuple(
        _webhook(name, webhook, index)
        for index, webhook in enumerate(obj.get("webhooks") or ())
        if webhook.get("rules")
    )


def _webhook(configuration: str, webhook: Json, index: int) -> Webhook:
    fails = webhook.get("failurePolicy", "Fail") != "Ignore"
    conditions = webhook.get("matchConditions") or ()
    compiler = Compiler(params=False)
    known = [version for version in webhook.get("admissionReviewVersions") or () if version in ("v1", "v1beta1")]
    return Webhook(
        id=f"{configuration}/{webhook['name']}/{index}",
        name=webhook["name"],
        configuration=configuration,
        constraints=constraints({**webhook, "resourceRules": webhook["rules"]}),
        conditions=Policy(
            name=webhook["name"],
            constraints=Constraints(),
            fails=fails,
            params=None,
            conditions=tuple(
                compiler.tried(condition["expression"].strip(), composed=False) for condition in conditions
            ),
        )
        if conditions
        else None,
        fails=fails,
        seconds=float(webhook.get("timeoutSeconds") or 10),
        dry_run=webhook.get("sideEffects") in ("None", "NoneOnDryRun"),
        review_version=known[0] if known else "",
        reinvoked=webhook.get("reinvocationPolicy") == "IfNeeded",
        client=client_config_of(webhook.get("clientConfig") or {}),
    )


def client_config_of(config: Json) -> ClientConfig:
    """Returns a clientConfig, of an admission or a conversion webhook."""
    service = config.get("service")
    try:
        ca = base64.b64decode(config.get("caBundle") or "").decode()
    except (binascii.Error, UnicodeDecodeError):
        ca = "invalid"
    if service is None:
        return ClientConfig(url=config.get("url") or "", ca=ca)
    reference = (service["namespace"], service["name"], service.get("port") or 443, service.get("path") or "")
    return ClientConfig(service=reference, ca=ca)
