"""ControllerRevisions: the templates that a DaemonSet or StatefulSet had, as `kubectl rollout history` and `undo` read
them. Pure.

A revision's data is a strategic merge patch that replaces the template, with sorted keys, as Go writes maps: kubectl
compares the bytes, and skips an undo to the present template if its version writes the same fields.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from podwire.controllers.adoption import controller_reference
from podwire.controllers.apps.deployment_decisions import template_hash
from podwire.protocols.k8sapi.watch import Object

POD_HASH = "controller-revision-hash"
REVISION_HASH = "controller.kubernetes.io/hash"
LONGEST_PREFIX = 223


def template_patch(spec: Mapping[str, Any]) -> Object:
    """Returns the patch that restores the template."""
    patch = {"spec": {"template": {**spec["template"], "$patch": "replace"}}}
    ordered: Object = msgspec.json.decode(msgspec.json.encode(patch, order="sorted"))
    return ordered


def new_revision(owner: Mapping[str, Any], number: int, hash_label: str) -> Object:
    """Returns the revision of the owner's present template; its hash is the label."""
    meta, spec = owner["metadata"], owner["spec"]
    data = template_patch(spec)
    hash_ = template_hash(data, (owner.get("status") or {}).get("collisionCount"))
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    revision: Object = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{meta['name'][:LONGEST_PREFIX]}-{hash_}",
            "namespace": meta["namespace"],
            "labels": {**labels, hash_label: hash_},
            "ownerReferences": [controller_reference(owner)],
        },
        "data": data,
        "revision": number,
    }
    if meta.get("annotations"):
        revision["metadata"]["annotations"] = dict(meta["annotations"])
    return revision


def number_of(revision: Mapping[str, Any]) -> int:
    return revision.get("revision") or 0


def next_number(revisions: Iterable[Mapping[str, Any]]) -> int:
    return max(map(number_of, revisions), default=0) + 1


def in_order(revisions: Iterable[Object]) -> list[Object]:
    """Returns revisions, the oldest first."""
    return sorted(
        revisions,
        key=lambda each: (
            number_of(each),
            each["metadata"].get("creationTimestamp") or "",
            each["metadata"]["name"],
        ),
    )


def surplus(old: Sequence[Object], limit: int | None, in_use: frozenset[str], hash_label: str) -> list[Object]:
    """Returns the oldest revisions beyond the limit that no pod uses."""
    excess = len(old) - (10 if limit is None else limit)
    if excess <= 0:
        return []
    unused = [revision for revision in in_order(old) if _identity(revision, hash_label) not in in_use]
    return unused[:excess]


def _identity(revision: Mapping[str, Any], hash_label: str) -> str:
    """Returns the value by which pods name a revision: its hash, or its name for StatefulSets."""
    if hash_label == POD_HASH:
        return str((revision["metadata"].get("labels") or {}).get(POD_HASH, ""))
    return str(revision["metadata"]["name"])
