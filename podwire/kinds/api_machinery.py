"""Kinds that are about the API server itself: API services, certificate requests, reviews."""

from typing import Any

from podwire.kinds.admission.strategy import HTTPS
from podwire.kinds.strategy import Strategy, selectable
from podwire.kinds.tables import NONE, Json, age_of, condition, elements, name_of, number, part, shown, text
from podwire.objects import names
from podwire.objects.times import human_duration

REVIEWS = (
    Strategy(group="authentication.k8s.io", kind="SelfSubjectReview"),
    Strategy(group="authentication.k8s.io", kind="TokenReview"),
    Strategy(group="authorization.k8s.io", kind="LocalSubjectAccessReview"),
    Strategy(group="authorization.k8s.io", kind="SelfSubjectAccessReview"),
    Strategy(group="authorization.k8s.io", kind="SelfSubjectRulesReview"),
    Strategy(group="authorization.k8s.io", kind="SubjectAccessReview"),
)
"""Questions that are answered and never stored."""


def default_api_service(obj: dict[str, Any]) -> None:
    if (service := obj["spec"].get("service")) is not None:
        service.setdefault("port", HTTPS)


def api_service_row(obj: Json, now: float) -> list[Any]:
    service = part(obj, "spec", "service")
    place = f"{text(service, 'namespace')}/{text(service, 'name')}" if service else "Local"
    available = condition(part(obj, "status"), "Available")
    state = shown(available, "status", "Unknown")
    if state != "True" and available:
        state = f"{state} ({text(available, 'reason')})"
    return [name_of(obj), place, state, age_of(obj, now)]


def signing_request_row(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    lasting = human_duration(number(spec, "expirationSeconds")) if "expirationSeconds" in spec else NONE
    return [
        name_of(obj),
        age_of(obj, now),
        text(spec, "signerName", NONE),
        text(spec, "username"),
        lasting,
        _signing_state(part(obj, "status")),
    ]


def _signing_state(status: Json) -> str:
    met = {text(entry, "type") for entry in elements(status, "conditions")}
    states = ["Denied" if "Denied" in met else "Approved" if "Approved" in met else "Pending"]
    if "Failed" in met:
        states.append("Failed")
    if status.get("certificate"):
        states.append("Issued")
    return ",".join(states)


API_SERVICE = Strategy(
    group="apiregistration.k8s.io",
    kind="APIService",
    check_name=names.path_segment,
    qualified_finalizers=False,
    stored_as="apiregistration.k8s.io/apiservices",
    parts={"spec": {}, "status": {}},
    default=default_api_service,
    allow_unconditional_update=False,
    columns="Name|Service|Available|Age",
    row=api_service_row,
)

SIGNING_REQUEST = Strategy(
    group="certificates.k8s.io",
    kind="CertificateSigningRequest",
    check_name=names.path_segment,
    parts={"spec": {}, "status": {}},
    selectable=(selectable("spec.signerName"),),
    columns="Name|Age|SignerName|Requestor|RequestedDuration|Condition",
    row=signing_request_row,
)
