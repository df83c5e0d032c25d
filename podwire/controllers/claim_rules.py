"""What becomes of claims for devices: made for pods, held by them, let go. Pure."""

from collections.abc import Set as AbstractSet

from podwire.objects.claims import FINALIZER, MOST_CONSUMERS, POD_CLAIM, PodClaim, ResourceClaim, read
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.watch import Object

LONGEST_BASE = 57
"""What leaves room for a dash and the five characters of a generated name in a label."""


def base_name(pod: str, claim: str) -> str:
    """What a generated name begins with; of two long names, each is cut by its share."""
    whole = len(pod) + len(claim) + 2
    if whole > LONGEST_BASE:
        pod, claim = pod[: len(pod) * LONGEST_BASE // whole], claim[: len(claim) * LONGEST_BASE // whole]
    return f"{pod.rstrip('-.')}-{claim.rstrip('-')}-"


def generated(pod: Pod, entry: PodClaim, template: Object) -> Object:
    """The claim that a template makes for a pod; protected from its beginning, which spares the scheduler a write."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True,
             "blockOwnerDeletion": True}  # fmt: skip
    wanted = template["spec"]
    given = wanted.get("metadata") or {}
    metadata = {
        "generateName": base_name(pod.name, entry.name),
        "namespace": pod.namespace,
        "ownerReferences": [owner],
        "annotations": {**(given.get("annotations") or {}), POD_CLAIM: entry.name},
        "finalizers": [FINALIZER],
    }
    if given.get("labels"):
        metadata["labels"] = given["labels"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": wanted.get("spec") or {},
    }


def over(pod: Pod) -> bool:
    """Nothing of it runs, nor ever will."""
    return pod.finished or (pod.deleting and not pod.spec.node_name)


def reserved(claim: Object, pod: Pod) -> Object | None:
    """A claim for a pod that was bound by somebody who does not reserve; None if that is not called for, or no use."""
    now = read(claim)
    holders = now.status.reserved_for
    if now.status.allocation is None or now.reserved_for(pod.uid):
        return None
    if now.deleting or len(holders) >= MOST_CONSUMERS:
        return None
    holder = {"resource": "pods", "name": pod.name, "uid": pod.uid}
    status = claim["status"]
    return {**claim, "status": {**status, "reservedFor": [*(status.get("reservedFor") or ()), holder]}}


def released(claim: Object, gone: AbstractSet[str]) -> Object | None:
    """The claim without these holders, and without devices when the last of them is gone or it is being deleted; None
    if nothing changes. Who allocated devices without our finalizer takes them back himself."""
    status, now = claim.get("status") or {}, read(claim)
    holders = status.get("reservedFor") or ()
    kept = [each for each in holders if each.get("uid") not in gone]
    left = dict(status)
    if len(kept) < len(holders):
        left["reservedFor"] = kept
    unused = not kept and (len(kept) < len(holders) or now.deleting)
    if unused and FINALIZER in now.metadata.finalizers:
        left.pop("allocation", None)
    return None if left == status else {**claim, "status": left}


def unprotected(claim: Object, *, was_released: bool) -> Object | None:
    """The claim without our finalizer, when it holds nothing any more; None if it has to keep it.

    A finalizer without an allocation may as well be that of a scheduler that is about to allocate.
    """
    now = read(claim)
    if FINALIZER not in now.metadata.finalizers or now.status.allocation is not None or now.status.reserved_for:
        return None
    if not (was_released or now.deleting):
        return None
    left = [each for each in now.metadata.finalizers if each != FINALIZER]
    return {**claim, "metadata": {**claim["metadata"], "finalizers": left}}


def superfluous(claim: ResourceClaim, finished: AbstractSet[str]) -> bool:
    """A claim that was generated for a pod that needs it no more."""
    return not claim.deleting and not claim.status.reserved_for and claim.owner[1] in finished
