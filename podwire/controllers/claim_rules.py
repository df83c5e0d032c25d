"""Decides about claims for devices: generated for pods, reserved, released. Pure."""

from collections.abc import Set as AbstractSet

from podwire.objects.claims import FINALIZER, MOST_CONSUMERS, POD_CLAIM, PodClaim, ResourceClaim, read
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.watch import Object

LONGEST_BASE = 57
"""Longest base of a generated name: leaves space for a dash and five characters in a label."""


def base_name(pod: str, claim: str) -> str:
    """Returns the base of a generated name; two long names are cut proportionally."""
    whole = len(pod) + len(claim) + 2
    if whole > LONGEST_BASE:
        pod, claim = pod[: len(pod) * LONGEST_BASE // whole], claim[: len(claim) * LONGEST_BASE // whole]
    return f"{pod.rstrip('-.')}-{claim.rstrip('-')}-"


def generated(pod: Pod, entry: PodClaim, template: Object) -> Object:
    """Returns the claim that a template generates for a pod; created with the finalizer, which saves the scheduler a
    write."""
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


def is_over(pod: Pod) -> bool:
    """Returns whether no container of the pod runs or ever will."""
    return pod.finished or (pod.deleting and not pod.spec.node_name)


def reserved(claim: Object, pod: Pod) -> Object | None:
    """Returns the claim reserved for a pod that was bound without a reservation; None if not needed or impossible."""
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
    """Returns the claim without these consumers, and without its allocation once the last is gone or it is being
    deleted; None if nothing changes. An allocation without our finalizer is left to its allocator."""
    status, now = claim.get("status") or {}, read(claim)
    holders = status.get("reservedFor") or ()
    kept = [holder for holder in holders if holder.get("uid") not in gone]
    left = dict(status)
    if len(kept) < len(holders):
        left["reservedFor"] = kept
    unused = not kept and (len(kept) < len(holders) or now.deleting)
    if unused and FINALIZER in now.metadata.finalizers:
        left.pop("allocation", None)
    return None if left == status else {**claim, "status": left}


def unprotected(claim: Object, *, was_released: bool) -> Object | None:
    """Returns the claim without our finalizer, once it has no allocation and no consumer; None if it must keep it.

    A finalizer without an allocation may belong to a scheduler that is about to allocate.
    """
    now = read(claim)
    if FINALIZER not in now.metadata.finalizers or now.status.allocation is not None or now.status.reserved_for:
        return None
    if not (was_released or now.deleting):
        return None
    left = [finalizer for finalizer in now.metadata.finalizers if finalizer != FINALIZER]
    return {**claim, "metadata": {**claim["metadata"], "finalizers": left}}


def superfluous(claim: ResourceClaim, finished: AbstractSet[str]) -> bool:
    """Returns whether a claim was generated for a pod that no longer needs it."""
    return not claim.deleting and not claim.status.reserved_for and claim.owner[1] in finished
