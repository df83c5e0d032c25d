"""The Strategy of CustomResourceDefinition."""

from typing import Any

from podwire.kinds.builtin.admissionregistration.strategy import HTTPS
from podwire.kinds.crds import definition
from podwire.kinds.strategy import Strategy


def default(obj: dict[str, Any]) -> None:
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
        status["storedVersions"] = [
            version["name"] for version in spec.get("versions") or () if version.get("storage")
        ][:1]


CUSTOM_RESOURCE_DEFINITION = Strategy(
    group="apiextensions.k8s.io",
    kind="CustomResourceDefinition",
    qualified_finalizers=False,
    stored_as="apiextensions.k8s.io/customresourcedefinitions",
    default=default,
    prepare_create=default,
    allow_unconditional_update=False,
    counts_generation=True,
    validate_create=definition.create,
    validate_update=definition.update,
)
