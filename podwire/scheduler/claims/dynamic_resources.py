"""DynamicResources plugin: filter, explanation, score, and the decision for the chosen node.

Pure, except for the random ids of device shares.
"""

from collections.abc import Iterator, Sequence
from uuid import uuid4

from podwire.objects.claims import ResourceClaim
from podwire.objects.nodes import Node
from podwire.scheduler.claims import explanation, pod_claims, results, selectors
from podwire.scheduler.claims.allocator import Aborted, Budget, BudgetExceeded, Picks, SearchContext
from podwire.scheduler.claims.cache import ClaimCache, ClaimDecision
from podwire.scheduler.claims.claim_requests import ClaimRequests, Request, Subrequest, Unsatisfiable
from podwire.scheduler.claims.pod_claims import NotYet, PodClaims
from podwire.scheduler.claims.search_cache import Found, NodeResults
from podwire.scheduler.framework import FilterAborted, NodeFilter, Rejected, Unresolvable
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.snapshot import NodeInfo, Snapshot

CANNOT = "cannot allocate all claims"
ELSEWHERE = Unresolvable(("resourceclaim not available on the node",))
MAX_SUBREQUESTS = 8
"""Points for a request that is met by its first subrequest; each later subrequest scores one less."""
MAX_EXPLAINED_NODES, MAX_EXPLAINED_DEVICES = 3, 8
"""Limits of the explanation: nodes, and devices per node."""


def node_filter(pod: PodInfo, snapshot: Snapshot) -> NodeFilter | Rejected | None:
    if not pod.pod.spec.resource_claims:
        return None
    try:
        claims = pod_claims.of_pod(pod.pod, snapshot.claims)
    except NotYet as error:
        return Rejected(str(error), quiet=True)
    except Unsatisfiable as error:
        return Rejected(str(error))
    if (gone := _allocated_in_vain(pod, claims, snapshot.claims)) is not None:
        return Rejected(why_in_vain(gone, snapshot.claims))
    return _node_filter(claims, snapshot.claims)


def _node_filter(claims: PodClaims, claim_cache: ClaimCache) -> NodeFilter:
    budget, node_results = Budget(), claim_cache.search_cache.to(claims.to_allocate)

    def check_node(info: NodeInfo) -> Sequence[str]:
        if info.node is None:
            return (CANNOT,)
        if not _usable(claims, info.node):
            return ELSEWHERE
        try:
            found = _found(node_results, claim_cache, info.node, budget)
        except Aborted as error:
            raise FilterAborted(str(error)) from None
        except BudgetExceeded as error:
            return (f"{CANNOT}: {error}",)
        return () if found is not None else (CANNOT,)

    return check_node


def _usable(claims: PodClaims, node: Node) -> bool:
    return not claims.allocated or all(claim.usable is None or claim.usable(node) for claim in claims.allocated)


def _found(node_results: NodeResults, claim_cache: ClaimCache, node: Node, budget: Budget) -> Found:
    return node_results.on(node, claim_cache.inventory.near(node.metadata.name), claim_cache.allocated_devices, budget)


def decide_claims(pod: PodInfo, snapshot: Snapshot, name: str) -> Sequence[ClaimDecision]:
    """Returns the allocations of the pod's claims on its chosen node."""
    node, claim_cache = snapshot.node(name), snapshot.claims
    if not pod.pod.spec.resource_claims or node is None:
        return ()
    claims = pod_claims.of_pod(pod.pod, claim_cache)
    found = _found(claim_cache.search_cache.to(claims.to_allocate), claim_cache, node, Budget())
    if found is None:
        raise AssertionError(f"{name} passed the filter, and has no devices for {pod.pod.ref}")
    given = [
        ClaimDecision(
            claim.claim, results.allocation(claim.claim, picks, claim_cache.classes, name, lambda: str(uuid4()))
        )
        for claim, picks in zip(claims.to_allocate, found, strict=True)
    ]
    return (*(ClaimDecision(claim.claim, None) for claim in claims.allocated), *given)


def prefers_devices(pod: PodInfo, snapshot: Snapshot) -> bool:
    """Whether a claim of the pod has alternatives, so that nodes may differ in which one they satisfy."""
    return bool(pod.pod.spec.resource_claims) and pod_claims.of_pod(pod.pod, snapshot.claims).prioritized


def score(pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    """Scores nodes higher where requests are met by an earlier subrequest."""
    if not pod.pod.spec.resource_claims:
        return None
    claims = pod_claims.of_pod(pod.pod, snapshot.claims)
    if not claims.prioritized:
        return None
    budget, node_results = Budget(), snapshot.claims.search_cache.to(claims.to_allocate)
    sums = [_rated(node_results, snapshot.claims, node, budget) for node in nodes]
    most = max(sums)
    return [100 * total // most for total in sums] if most else None


def _rated(node_results: NodeResults, claim_cache: ClaimCache, info: NodeInfo, budget: Budget) -> int:
    try:
        found = _found(node_results, claim_cache, info.node, budget) if info.node is not None else None
    except (Aborted, BudgetExceeded):
        found = None
    if found is None:
        return 0
    pairs = zip(node_results.to_allocate, found, strict=True)
    return sum(
        _rank(request, picks)
        for claim_requests, picks in pairs
        for request in claim_requests.requests
        if request.prioritized
    )


def _rank(request: Request, picks: Picks) -> int:
    taken = {pick.subrequest.name for pick in picks}
    return next(
        (MAX_SUBREQUESTS - index for index, subrequest in enumerate(request.subrequests) if subrequest.name in taken), 0
    )


def to_deallocate(pod: PodInfo, snapshot: Snapshot) -> ResourceClaim | None:
    """Returns an allocated claim which no other pod uses, and whose devices exclude nodes or do not exist."""
    try:
        claims = pod_claims.of_pod(pod.pod, snapshot.claims)
    except (NotYet, Unsatisfiable):
        return None
    if (gone := _allocated_in_vain(pod, claims, snapshot.claims)) is not None:
        return gone
    for claim in claims.allocated:
        excludes = claim.usable and not all(node.node and claim.usable(node.node) for node in snapshot.nodes)
        if excludes and _is_alone(pod, claim.claim):
            return claim.claim
    return None


def _is_alone(pod: PodInfo, claim: ResourceClaim) -> bool:
    return all(consumer.is_pod and consumer.uid == pod.pod.uid for consumer in claim.status.reserved_for)


def _allocated_in_vain(pod: PodInfo, claims: PodClaims, claim_cache: ClaimCache) -> ResourceClaim | None:
    """Returns a claim of this pod alone that is allocated a device which does not exist: no driver could prepare it."""
    for claim in (allocated.claim for allocated in claims.allocated):
        if _is_alone(pod, claim) and why_in_vain(claim, claim_cache):
            return claim
    return None


def why_in_vain(claim: ResourceClaim, claim_cache: ClaimCache) -> str:
    """Why no driver can prepare a claim; empty when one can."""
    for device in claim.allocated:
        if claim_cache.inventory.lacks(device.identity):
            where = f"{device.device} of pool {device.driver}/{device.pool}"
            return f"resourceclaim {claim.ref} was allocated device {where}, which does not exist"
    return ""


def explain(pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> str:
    """Explains for failed nodes which request could not be met, and what is wrong with each device."""
    try:
        claims = pod_claims.of_pod(pod.pod, snapshot.claims)
    except (NotYet, Unsatisfiable):
        return ""
    failed = [node.node for node in nodes if node.node is not None and _usable(claims, node.node)]
    sentences = [_sentence(claims, snapshot.claims, node) for node in failed[:MAX_EXPLAINED_NODES]]
    more = len(failed) - MAX_EXPLAINED_NODES
    return " ".join((*sentences, f"{more} more likewise.") if more > 0 else sentences)


def _sentence(claims: PodClaims, claim_cache: ClaimCache, node: Node) -> str:
    context = SearchContext(node, claim_cache.inventory.near(node.name), claim_cache.allocated_devices, Budget())
    for claim_requests in claims.to_allocate:
        for request in claim_requests.requests:
            subrequests = [
                (subrequest, *_devices(claim_requests, subrequest, context)) for subrequest in request.subrequests
            ]
            if not any(usable for _subrequest, usable, _reasons in subrequests):
                subrequest, _usable, reasons = subrequests[-1]  # the last alternative explains all
                return (
                    f"On {node.name}, claim {claim_requests.claim.ref}, request {subrequest.name}: {_listed(reasons)}."
                )
    ref = ", ".join(claim.claim.ref for claim in claims.to_allocate)
    return f"On {node.name}, {ref}: each request could be met, but not all of them together."


def _devices(
    claim_requests: ClaimRequests, subrequest: Subrequest, context: SearchContext
) -> tuple[bool, Sequence[str]]:
    """Returns whether enough devices exist for a request alone, and why the others do not fit.

    Devices that match the selectors come first: they are only taken or tainted.
    """
    usable = 0
    near, far = [pool.problem for pool in context.pools if pool.problem], list[str]()
    for device in (candidate for pool in context.pools if not pool.problem for candidate in pool.devices):
        if not device.node_scope.includes(context.node):
            continue
        why = explanation.why_not(device, subrequest, context.allocated_devices) or explanation.apart(
            device, subrequest, claim_requests
        )
        if not why:
            usable += 1
        else:
            matches = selectors.matches(device, subrequest.selectors) is True
            (near if matches else far).append(f"{device.name}: {why}")
    reasons = [*near, *far]
    return usable >= max(subrequest.count, 1) and (subrequest.count > 0 or not reasons), reasons


def _listed(reasons: Sequence[str]) -> str:
    def parts() -> Iterator[str]:
        yield from reasons[:MAX_EXPLAINED_DEVICES]
        if len(reasons) > MAX_EXPLAINED_DEVICES:
            yield f"and {len(reasons) - MAX_EXPLAINED_DEVICES} more"

    return "; ".join(parts()) or "no devices there"
