"""Decisions about a Deployment and its ReplicaSets: revisions, sizes, what is left over. Pure.

Objects are plain dicts. A decision returns changed copies or sizes by name; `deployment.py` carries it out.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from podwire.controllers.adoption import controller_reference
from podwire.controllers.apps.conditions import scaled_value
from podwire.protocols.k8sapi.watch import Object

HASH_LABEL = "pod-template-hash"
MAX_INT64 = 2**63 - 1
REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
ROLLBACK_TO = "deprecated.deployment.rollback.to"
NOT_COPIED = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        REVISION_HISTORY,
        DESIRED_REPLICAS,
        MAX_REPLICAS,
        ROLLBACK_TO,
    }
)
"""Annotations of a Deployment that its ReplicaSets do not get."""
HISTORY_CHARACTERS = 2000
FOREVER = 2**31 - 1
LONGEST_NAME = 253
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Without vowels and digits that look like them: no hash is a word."""


def replicas(object_: Mapping[str, Any]) -> int:
    return (object_.get("spec") or {}).get("replicas") or 0


def status_count(set_: Mapping[str, Any], field: str) -> int:
    return (set_.get("status") or {}).get(field) or 0


def annotations(object_: Mapping[str, Any]) -> Mapping[str, str]:
    return object_["metadata"].get("annotations") or {}


def revision(set_: Mapping[str, Any]) -> int:
    """Returns the revision of a set; 0 for none or one that is not a number."""
    return _number(annotations(set_).get(REVISION, "")) or 0


def _number(text: str) -> int | None:
    """Returns a number of 64 bits, as other controllers write it; None for any other text."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else MAX_INT64 + 1
    return number if number <= MAX_INT64 else None


def by_age(sets: Iterable[Object]) -> list[Object]:
    """Returns sets, the oldest first."""
    return sorted(sets, key=lambda set_: (set_["metadata"].get("creationTimestamp") or "", set_["metadata"]["name"]))


def active(sets: Iterable[Object]) -> list[Object]:
    return [set_ for set_ in sets if replicas(set_) > 0]


def same_template(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Compares two pod templates without the label of their hash."""
    return _without_hash(one) == _without_hash(other)


def _without_hash(template: Mapping[str, Any]) -> Object:
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {key: value for key, value in (metadata.get("labels") or {}).items() if key != HASH_LABEL}
    return {**template, "metadata": {key: value for key, value in metadata.items() if value is not None}}


def find_new(deployment: Object, sets: Iterable[Object]) -> Object | None:
    """Returns the oldest set with the Deployment's template."""
    template = deployment["spec"]["template"]
    return next((set_ for set_ in by_age(sets) if same_template(set_["spec"]["template"], template)), None)


def template_hash(template: Mapping[str, Any], collisions: int | None) -> str:
    """Returns a short hash of a template (32-bit FNV-1a), in characters that are valid in names."""
    text = msgspec.json.encode(template, order="sorted")
    if collisions is not None:
        text += collisions.to_bytes(8, "little")
    value = 2166136261
    for byte in text:
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))


def is_rolling(deployment: Mapping[str, Any]) -> bool:
    return bool((deployment["spec"].get("strategy") or {}).get("type") == "RollingUpdate")


def _bounds(deployment: Mapping[str, Any]) -> tuple[int, int]:
    """Returns how many pods may be surplus and how many may be unavailable; not both are 0."""
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    total = replicas(deployment)
    surge = scaled_value(rolling.get("maxSurge"), total, round_up=True)
    unavailable = scaled_value(rolling.get("maxUnavailable"), total, round_up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def max_surge(deployment: Mapping[str, Any]) -> int:
    return _bounds(deployment)[0] if is_rolling(deployment) else 0


def max_unavailable(deployment: Mapping[str, Any]) -> int:
    total = replicas(deployment)
    return min(_bounds(deployment)[1], total) if is_rolling(deployment) and total else 0


def with_size_annotations(deployment: Object, set_: Object) -> Object:
    """Returns a set with the annotations by which a later scaling is recognized and shared."""
    desired = {
        DESIRED_REPLICAS: str(replicas(deployment)),
        MAX_REPLICAS: str(replicas(deployment) + max_surge(deployment)),
    }
    return _annotated(set_, {**annotations(set_), **desired})


def _annotated(object_: Object, all_annotations: Mapping[str, str]) -> Object:
    return {**object_, "metadata": {**object_["metadata"], "annotations": dict(all_annotations)}}


def with_revision(deployment: Object, set_: Object, old: Iterable[Object]) -> Object:
    """Returns the new set with the next revision and the Deployment's annotations; the same object if it has them."""
    next_revision = max((revision(old_set) for old_set in old), default=0) + 1
    copied = {key: value for key, value in annotations(deployment).items() if key not in NOT_COPIED}
    changed = {**annotations(set_), **copied}
    before = changed.get(REVISION, "")
    known = _number(before) if before else 0
    if known is not None and known < next_revision:
        changed[REVISION] = str(next_revision)
        if before:
            changed[REVISION_HISTORY] = _history(changed.get(REVISION_HISTORY, ""), before)
    minimum = deployment["spec"].get("minReadySeconds") or 0
    if changed == annotations(set_) and (set_["spec"].get("minReadySeconds") or 0) == minimum:
        return set_
    result = _annotated(set_, changed)
    result["spec"] = {**set_["spec"], "minReadySeconds": minimum}
    return result


def _history(history: str, latest: str) -> str:
    """Returns the revision history with one more, without the oldest ones if it gets too long."""
    revisions = [*(number for number in history.split(",") if number), latest]
    while len(",".join(revisions)) > HISTORY_CHARACTERS:
        revisions.pop(0)
    return ",".join(revisions)


def new_set(deployment: Object, old: Sequence[Object]) -> Object:
    """Returns the ReplicaSet to create for the Deployment's template."""
    meta, spec = deployment["metadata"], deployment["spec"]
    hash_ = template_hash(spec["template"], (deployment.get("status") or {}).get("collisionCount"))
    template = copy.deepcopy(spec["template"])
    given = template.get("metadata") or {}
    labels = {**(given.get("labels") or {}), HASH_LABEL: hash_}
    template["metadata"] = {**given, "labels": labels}
    selector = spec.get("selector") or {}
    set_: Object = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{meta['name'][: LONGEST_NAME - len(hash_) - 1]}-{hash_}",
            "namespace": meta["namespace"],
            "ownerReferences": [controller_reference(deployment)],
            "labels": labels,
        },
        "spec": {
            "replicas": 0,
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: hash_}},
            "template": template,
        },
    }
    set_["spec"]["replicas"] = new_set_size(deployment, set_, old)
    return with_size_annotations(deployment, with_revision(deployment, set_, old))


def new_set_size(deployment: Object, new: Object, old: Iterable[Object]) -> int:
    """Returns the size of the new set: as large as the surge allows."""
    wanted, size = replicas(deployment), replicas(new)
    if not is_rolling(deployment) or size > wanted:
        return wanted
    rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    most = wanted + scaled_value(rolling.get("maxSurge"), wanted, round_up=True)
    total = size + sum(map(replicas, old))
    return size + min(most - total, wanted - size) if total < most else size


def old_set_sizes(deployment: Object, new: Object, old: Sequence[Object]) -> dict[str, int]:
    """Returns the sizes of old sets that shrink in a rolling update, by name.

    1. Pods that are not available go first: they serve nobody.  2. Then others, while enough are available.
    """
    sets = by_age(active(old))
    sizes = {set_["metadata"]["name"]: replicas(set_) for set_ in sets}
    minimum = replicas(deployment) - max_unavailable(deployment)
    total = replicas(new) + sum(sizes.values())
    budget = total - minimum - (replicas(new) - status_count(new, "availableReplicas"))
    if budget <= 0 or not sizes:
        return {}
    changed: dict[str, int] = {}
    for set_ in sets:
        name = set_["metadata"]["name"]
        unhealthy = sizes[name] - status_count(set_, "availableReplicas")
        cut = min(budget, max(unhealthy, 0))
        if cut:
            changed[name] = sizes[name] = sizes[name] - cut
            budget -= cut
    spare = sum(status_count(set_, "availableReplicas") for set_ in (new, *sets)) - minimum
    for set_ in sets:
        name = set_["metadata"]["name"]
        cut = min(sizes[name], max(spare, 0))
        if cut:
            changed[name] = sizes[name] = sizes[name] - cut
            spare -= cut
    return changed


def was_scaled(deployment: Object, sets: Iterable[Object]) -> bool:
    """Returns whether the Deployment's size changed since its sets got theirs."""
    desired = (_number(annotations(set_).get(DESIRED_REPLICAS, "")) for set_ in active(sets))
    return any(number is not None and number != replicas(deployment) for number in desired)


def proportional_sizes(deployment: Object, new: Object | None, old: Sequence[Object]) -> dict[str, int]:
    """Returns the size of each set after the Deployment was scaled, by name.

    With one active set, it gets the whole size. In the middle of a rollout every set gets a share in proportion to its
    size, and the largest the rest.
    """
    wanted = replicas(deployment)
    every = [*([new] if new is not None else []), *old]
    running = active(every)
    if len(running) <= 1:
        newest = running or ([new] if new is not None else by_age(old)[-1:])
        return {set_["metadata"]["name"]: wanted for set_ in newest}
    if new is not None and _saturated(deployment, new):
        return {set_["metadata"]["name"]: 0 for set_ in active(old)}
    if not is_rolling(deployment):
        return {}
    to_add = (wanted + max_surge(deployment) if wanted else 0) - sum(map(replicas, running))
    running = _largest_first(running, newest=to_add > 0)
    sizes: dict[str, int] = {}
    added = 0
    for set_ in running:
        share = _share(deployment, set_, to_add, added)
        sizes[set_["metadata"]["name"]] = replicas(set_) + share
        added += share
    if to_add:
        first = running[0]["metadata"]["name"]
        sizes[first] = max(0, sizes[first] + to_add - added)
    return sizes


def _saturated(deployment: Object, new: Object) -> bool:
    wanted = replicas(deployment)
    desired = _number(annotations(new).get(DESIRED_REPLICAS, ""))
    return replicas(new) == desired == status_count(new, "availableReplicas") == wanted


def _largest_first(sets: Iterable[Object], *, newest: bool) -> list[Object]:
    """Returns sets by size; of equal ones the newest first, or the oldest."""
    aged = by_age(sets)
    return sorted(reversed(aged) if newest else aged, key=replicas, reverse=True)


def _share(deployment: Object, set_: Object, to_add: int, added: int) -> int:
    """Returns the replicas that a set gains or loses."""
    size = replicas(set_)
    if not to_add or to_add == added:
        return 0
    if not replicas(deployment):
        fraction = -size
    else:
        before = _number(annotations(set_).get(MAX_REPLICAS, "")) or status_count(deployment, "replicas")
        if not before:
            return 0
        most = replicas(deployment) + max_surge(deployment)
        fraction = int(size * most / before + 0.5) - size
    allowed = to_add - added
    return min(fraction, allowed) if to_add > 0 else max(fraction, allowed)


def sets_to_delete(deployment: Object, old: Iterable[Object]) -> list[Object]:
    """Returns old sets without pods beyond the revision history limit."""
    limit = deployment["spec"].get("revisionHistoryLimit")
    if limit is None or limit == FOREVER:
        return []
    alive = [set_ for set_ in by_age(old) if not set_["metadata"].get("deletionTimestamp")]
    surplus = sorted(alive, key=revision)[: max(0, len(alive) - limit)]
    return [
        set_
        for set_ in surplus
        if not replicas(set_)
        and not status_count(set_, "replicas")
        and (set_["metadata"].get("generation") or 0) <= status_count(set_, "observedGeneration")
    ]


def rollback_to(deployment: Mapping[str, Any]) -> int | None:
    """Returns the revision that the deprecated annotation asks for; 0 for the one before."""
    return _number(annotations(deployment).get(ROLLBACK_TO, ""))


def rollback_target(wanted: int, sets: Sequence[Object]) -> Object | None:
    """Returns the set of a revision; of 0, the set with the second highest."""
    if not wanted:
        revisions = sorted((revision(set_) for set_ in sets), reverse=True)
        wanted = revisions[1] if len(revisions) > 1 else 0
    return next((set_ for set_ in sets if wanted and revision(set_) == wanted), None)


def rolled_back(deployment: Object, target: Object | None) -> Object:
    """Returns the Deployment with the template and annotations of a set, and without the request."""
    kept = dict(annotations(deployment))
    spec = deployment["spec"]
    if target is not None and not same_template(spec["template"], target["spec"]["template"]):
        spec = {**spec, "template": _without_hash(target["spec"]["template"])}
        theirs = {key: value for key, value in annotations(target).items() if key not in NOT_COPIED}
        kept = {**{key: value for key, value in kept.items() if key in NOT_COPIED}, **theirs}
    kept.pop(ROLLBACK_TO, None)
    return {**_annotated(deployment, kept), "spec": spec}
