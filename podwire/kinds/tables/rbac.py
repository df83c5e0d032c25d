"""Rows of who may do what: role bindings and certificate requests."""

from typing import Any

from podwire.kinds.tables.values import NONE, Json, Rows, age, elements, name, number, part, text
from podwire.objects.times import human_duration


def binding(obj: Json, now: float) -> list[Any]:
    role, subjects = part(obj, "roleRef"), elements(obj, "subjects")

    def named(kind: str) -> str:
        return ", ".join(_subject(each) for each in subjects if each.get("kind") == kind)

    told = f"{text(role, 'kind')}/{text(role, 'name')}"
    return [name(obj), told, age(obj, now), named("User"), named("Group"), named("ServiceAccount")]


def _subject(subject: Json) -> str:
    if subject.get("kind") == "ServiceAccount":
        return f"{text(subject, 'namespace')}/{text(subject, 'name')}"
    return text(subject, "name")


def signing_request(obj: Json, now: float) -> list[Any]:
    spec = part(obj, "spec")
    lasting = human_duration(number(spec, "expirationSeconds")) if "expirationSeconds" in spec else NONE
    return [
        name(obj),
        age(obj, now),
        text(spec, "signerName", NONE),
        text(spec, "username"),
        lasting,
        _signing_state(part(obj, "status")),
    ]


def _signing_state(status: Json) -> str:
    met = {text(each, "type") for each in elements(status, "conditions")}
    told = ["Denied" if "Denied" in met else "Approved" if "Approved" in met else "Pending"]
    if "Failed" in met:
        told.append("Failed")
    if status.get("certificate"):
        told.append("Issued")
    return ",".join(told)


ROWS: Rows = {
    ("certificates.k8s.io", "certificatesigningrequests"): signing_request,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): binding,
    ("rbac.authorization.k8s.io", "rolebindings"): binding,
}
