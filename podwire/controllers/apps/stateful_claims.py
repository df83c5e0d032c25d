"""PersistentVolumeClaims of a StatefulSet: one per claim template and pod, and who owns them. Pure.

The retention policy is carried out by the garbage collector: a claim that is to be deleted with the set is owned by the
set, one that is to be deleted after scaling down is owned by its pod as soon as that pod is beyond the size.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from podwire.controllers.adoption import controller_reference
from podwire.protocols.k8sapi.watch import Object

RETAIN, DELETE = "Retain", "Delete"


def claim_name(set_: Mapping[str, Any], template: str, ordinal: int) -> str:
    return f"{template}-{set_['metadata']['name']}-{ordinal}"


def claims_of(set_: Mapping[str, Any], ordinal: int) -> list[Object]:
    """Returns the claims of a pod, as they are created."""
    labels = (set_["spec"].get("selector") or {}).get("matchLabels") or {}
    claims = []
    for template in set_["spec"].get("volumeClaimTemplates") or ():
        given = template.get("metadata") or {}
        metadata: Object = {
            "name": claim_name(set_, given["name"], ordinal),
            "namespace": set_["metadata"]["namespace"],
            "labels": {**(given.get("labels") or {}), **labels},
        }
        if given.get("annotations"):
            metadata["annotations"] = given["annotations"]
        if policy(set_)[0] == DELETE:
            metadata["ownerReferences"] = [controller_reference(set_)]
        spec = template.get("spec") or {}
        claims.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return claims


def policy(set_: Mapping[str, Any]) -> tuple[str, str]:
    """Returns what happens to claims when the set is deleted and when it is scaled down."""
    given = set_["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    return given.get("whenDeleted") or RETAIN, given.get("whenScaled") or RETAIN


def _names(reference: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Returns whether a reference is to an object of this kind and name, whatever its uid."""
    named = (reference.get("apiVersion"), reference.get("kind"), reference.get("name"))
    return named == (owner["apiVersion"], owner["kind"], owner["metadata"]["name"])


def is_stale(references: Sequence[Mapping[str, Any]], owner: Mapping[str, Any]) -> bool:
    """Returns whether a claim is owned by an earlier object of the same name: the garbage collector will delete it."""
    found = next((reference for reference in references if _names(reference, owner)), None)
    return found is not None and found.get("uid") != owner["metadata"].get("uid")


def has_conflict(references: Sequence[Mapping[str, Any]], set_: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Returns whether something else controls the claim; then the retention policy is ignored."""
    if policy(set_) == (RETAIN, RETAIN):
        return False
    for reference in references:
        if _names(reference, set_) or _names(reference, pod):
            owner = set_ if _names(reference, set_) else pod
            if reference.get("uid") != owner["metadata"].get("uid"):
                return True
        elif reference.get("controller"):
            return True
    return False


def owners(
    references: Sequence[Object], set_: Mapping[str, Any], pod: Mapping[str, Any], *, scaled_down: bool
) -> list[Object] | None:
    """Returns the owner references that a claim should have; None if it has them."""
    if is_stale(references, set_) or is_stale(references, pod):
        return None
    others = [reference for reference in references if not _names(reference, set_) and not _names(reference, pod)]
    if has_conflict(references, set_, pod):
        return others if len(others) != len(references) else None
    when_deleted, when_scaled = policy(set_)
    wanted = list(others)
    if when_scaled == DELETE and scaled_down:
        wanted.append(controller_reference(pod))
    elif when_deleted == DELETE:
        wanted.append(controller_reference(set_))
    return None if _same(wanted, references) else wanted


def _same(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> bool:
    def shown(references: Sequence[Mapping[str, Any]]) -> set[tuple[str, bool]]:
        return {(reference.get("uid", ""), bool(reference.get("controller"))) for reference in references}

    return shown(one) == shown(other)
