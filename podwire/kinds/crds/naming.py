"""The status of a definition: the names that are accepted, and whether it is established and served."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from podwire.kinds.crds.served_kinds import storage_version
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.kinds import Kind

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Names:
    """The accepted names, and the reason why not all requested ones are."""

    names: dict[str, Any]
    reason: str = ""
    message: str = ""


def condition(crd: Json, name: str) -> bool:
    """Returns whether a condition of the definition is true."""
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(entry.get("type") == name and entry.get("status") == "True" for entry in conditions)


def established(crd: Json, now: float, existing_kinds: Iterable[Kind]) -> dict[str, Any]:
    """Returns the status of a definition, given the kinds of its group that others have (other definitions, built-in
    ones)."""
    before: Json = crd.get("status") or {}
    others = [kind for kind in existing_kinds if kind.group == crd["spec"]["group"]]
    verdict = _decide(crd["spec"]["names"], before.get("acceptedNames") or {}, others)
    when = rfc3339(now)
    if verdict.reason:
        accepted = _condition("NamesAccepted", "False", verdict.reason, verdict.message, when)
    else:
        accepted = _condition("NamesAccepted", "True", "NoConflicts", "no conflicts found", when)
    served = _condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted", when)
    if verdict.reason and not condition(crd, "Established"):
        served = _condition("Established", "False", "NotAccepted", "not all names are accepted", when)
    stored = list(before.get("storedVersions") or [])
    storage = storage_version(crd)
    return {
        **before,
        "acceptedNames": verdict.names,
        "conditions": _merged(before.get("conditions") or [], (accepted, served)),
        "storedVersions": stored if storage in stored else [*stored, storage],
    }


def _decide(requested: Json, accepted: Json, others: list[Kind]) -> _Names:
    """Decides on each name: one that others use keeps its accepted value; of several conflicts the last is reported."""
    resources = {word for other in others for word in (other.resource, other.singular, *other.short_names)}
    kinds = {word for other in others for word in (other.kind, other.list_kind)}
    verdict = dict(accepted)
    reason = message = ""
    for word, taken in (("plural", resources), ("singular", resources), ("shortNames", resources),
                        ("kind", kinds), ("listKind", kinds)):  # fmt: skip
        if word not in requested:
            verdict.pop(word, None)
            continue
        clashes = [
            name for name in _listed(requested[word]) if name in taken and name not in _listed(accepted.get(word))
        ]
        if clashes:
            reason = f"{word[0].upper()}{word[1:]}Conflict"
            message = ", ".join(f'"{clash}" is already in use' for clash in clashes)
        else:
            verdict[word] = requested[word]
    if requested.get("categories"):
        verdict["categories"] = requested["categories"]
    else:
        verdict.pop("categories", None)
    return _Names({"plural": "", "kind": "", **verdict}, reason, message)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _condition(name: str, status: str, reason: str, message: str, when: str) -> dict[str, Any]:
    return {"type": name, "status": status, "reason": reason, "message": message, "lastTransitionTime": when}


def _merged(before: list[Json], after: Iterable[dict[str, Any]]) -> list[Json]:
    """Returns the conditions with the new ones in their places; one whose status stays keeps the time of its last
    change."""
    merged = {entry.get("type"): entry for entry in before}
    for entry in after:
        old = merged.get(entry["type"])
        if old is not None and old.get("status") == entry["status"] and old.get("lastTransitionTime"):
            entry["lastTransitionTime"] = old["lastTransitionTime"]
        merged[entry["type"]] = entry
    return list(merged.values())
