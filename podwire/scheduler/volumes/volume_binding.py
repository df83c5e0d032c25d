"""VolumeBinding: the nodes from which the volumes of a pod can be reached, bound or provisioned. Pure.

Words and order are upstream's. A claim that is bound restricts the nodes by its volume's node affinity. One whose class
waits for the first consumer is matched with a volume that the node can reach, or provisioned for the node; the decision
for the chosen node is written before the pod is bound. Any other claim has to be bound first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.objects import persistent_volumes as storage
from podwire.objects import selectors
from podwire.objects.nodes import Node
from podwire.scheduler.framework import NodeFilter, Reasons, Rejected, Unresolvable
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.snapshot import NodeInfo, Snapshot
from podwire.scheduler.volumes.cache import Object, VolumeCache, VolumeDecision

BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
NO_SUCH_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
NOT_LISTED = "volumes, claims and storage classes have not all been listed yet"


class Unusable(Exception):
    """A claim that excludes all nodes."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    """The claims of a pod; those that wait for it are the smallest first."""

    bound: tuple[Object, ...] = ()
    waiting: tuple[Object, ...] = ()


def claims_of(pod: PodInfo, cache: VolumeCache) -> PodClaims:
    """Sorts the claims of a pod. Raises Unusable."""
    bound: list[Object] = []
    waiting: list[Object] = []
    immediate = False
    for claim in usable_claims(pod, cache):
        if storage.is_fully_bound(claim):
            bound.append(claim)
        elif not claim["spec"].get("volumeName") and storage.waits_for_consumer(
            cache.classes.get(storage.class_of_claim(claim))
        ):
            waiting.append(claim)
        else:
            immediate = True
    if immediate:
        raise Unusable(UNBOUND)
    return PodClaims(tuple(bound), tuple(sorted(waiting, key=storage.requested)))


def usable_claims(pod: PodInfo, cache: VolumeCache) -> list[Object]:
    """Returns the claims of a pod. Raises Unusable for one that is missing, lost, deleted, or not the pod's own."""
    claims: list[Object] = []
    for name, ephemeral in pod.claims:
        claim = cache.claim((pod.pod.namespace, name))
        if claim is None and ephemeral:
            raise Unusable(f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"')
        if claim is None:
            raise Unusable(f'persistentvolumeclaim "{name}" not found')
        if (claim.get("status") or {}).get("phase") == "Lost":
            volume = claim["spec"].get("volumeName", "")
            raise Unusable(f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"')
        if claim["metadata"].get("deletionTimestamp"):
            raise Unusable(f'persistentvolumeclaim "{name}" is being deleted')
        if ephemeral and not storage.is_made_for(claim, pod.pod.uid):
            raise Unusable(storage.not_made_for(claim, pod.pod.ref))
        claims.append(claim)
    return claims


def node_filter(pod: PodInfo, snapshot: Snapshot) -> NodeFilter | Rejected | None:
    if not pod.claims:
        return None
    cache = snapshot.volumes
    if not cache.known:
        return Rejected(NOT_LISTED, quiet=True)
    try:
        claims = claims_of(pod, cache)
    except Unusable as error:
        return Rejected(str(error))

    def check_node(info: NodeInfo) -> Reasons:
        found = decide_on(claims, cache, info.node) if info.node is not None else (NODE_CONFLICT,)
        return () if isinstance(found, VolumeDecision) else Unresolvable(found)

    return check_node


def decide_volumes(pod: PodInfo, snapshot: Snapshot, name: str) -> VolumeDecision:
    """Returns the writes before the pod is bound to its chosen node; none for claims that a profile without this filter
    has let pass: the kubelet waits for them."""
    node = snapshot.node(name)
    if not pod.claims or node is None or not snapshot.volumes.known:
        return VolumeDecision()
    try:
        found = decide_on(claims_of(pod, snapshot.volumes), snapshot.volumes, node)
    except Unusable:
        return VolumeDecision()
    return found if isinstance(found, VolumeDecision) else VolumeDecision()


def decide_on(claims: PodClaims, cache: VolumeCache, node: Node) -> VolumeDecision | Sequence[str]:
    """Returns the decision for one node, or the reasons against it."""
    reasons = []
    missing = [claim for claim in claims.bound if claim["spec"]["volumeName"] not in cache.volumes]
    if not missing and not all(
        storage.is_reachable(cache.volumes[claim["spec"]["volumeName"]], node) for claim in claims.bound
    ):
        reasons.append(NODE_CONFLICT)
    found = _match(claims.waiting, cache, node)
    if isinstance(found, str):
        reasons.append(found)
    if missing:
        reasons.append(NO_SUCH_VOLUME)
    return found if isinstance(found, VolumeDecision) and not reasons else reasons


def _match(waiting: Sequence[Object], cache: VolumeCache, node: Node) -> VolumeDecision | str:
    bindings: list[tuple[Object, Object]] = []
    provisions: list[Object] = []
    chosen: set[str] = set()
    for claim in waiting:
        selected = storage.annotations(claim).get(storage.SELECTED_NODE)
        if selected is not None and selected != node.name:
            return BIND_CONFLICT
        name = storage.class_of_claim(claim)
        volume = None
        if selected is None:
            volume = storage.best_match(claim, cache.free_volumes(name), node=node, excluded=chosen, waits=True)
        if volume is not None:
            chosen.add(volume["metadata"]["name"])
            bindings.append((volume, claim))
        elif why := _why_not_provisioned(claim, cache.classes[name], cache, node):
            return why
        else:
            provisions.append(claim)
    return VolumeDecision(tuple(bindings), tuple(provisions))


def _why_not_provisioned(claim: Object, class_: Object, cache: VolumeCache, node: Node) -> str:
    """Returns why no volume can be provisioned for a claim on a node; empty if one can."""
    provisioner = class_.get("provisioner") or ""
    if provisioner in ("", storage.NO_PROVISIONER) or not _in_topology(class_.get("allowedTopologies") or (), node):
        return BIND_CONFLICT
    driver = cache.drivers.get(provisioner)
    size = storage.requested(claim).value()
    if driver is None or not driver["spec"].get("storageCapacity") or not size:
        return ""
    for capacity in cache.capacities.values():
        if capacity.get("storageClassName") == class_["metadata"]["name"] and _has_space(capacity, size, node):
            return ""
    return NOT_ENOUGH_SPACE


def _in_topology(terms: Sequence[Mapping[str, Any]], node: Node) -> bool:
    return not terms or any(
        all(
            node.metadata.labels.get(row.get("key", "")) in (row.get("values") or ())
            for row in term.get("matchLabelExpressions") or ()
        )
        for term in terms
    )


def _has_space(capacity: Object, size: int, node: Node) -> bool:
    limit = capacity.get("maximumVolumeSize") or capacity.get("capacity")
    topology = capacity.get("nodeTopology")
    if limit is None or topology is None or storage.amount({"storage": limit}).value() < size:
        return False
    try:
        return selectors.from_object(topology).matches(node.metadata.labels)
    except ValueError:
        return False
