"""DynamicResources: the filter, its explanation, the score, and the devices that a pod gets on its node.

Pure, but for the ids that shares of devices get.
"""

from collections.abc import Iterator, Sequence
from uuid import uuid4

from podwire.objects.claims import ResourceClaim
from podwire.objects.nodes import Node
from podwire.scheduler.claims import explanation, pod_claims, results, selectors
from podwire.scheduler.claims.allocator import Aborted, Budget, GivenUp, Picks, Surroundings
from podwire.scheduler.claims.cache import Book, Decided
from podwire.scheduler.claims.claim_requests import CannotBeMet, Needs, Request, Way
from podwire.scheduler.claims.pod_claims import NotYet, PodClaims
from podwire.scheduler.claims.search_cache import Answers, Found
from podwire.scheduler.framework import Hopeless, Judge, Refused
from podwire.scheduler.pod_info import PodInfo
from podwire.scheduler.snapshot import NodeInfo, Snapshot

CANNOT = "cannot allocate all claims"
ELSEWHERE = "resourceclaim not available on the node"
MOST_WAYS = 8
"""Of one request: the first way that can be had gains a node so much, each later one less."""
TOLD_NODES, TOLD_DEVICES = 3, 8
"""So many nodes, and devices of each, are told one by one."""


def judge(pod: PodInfo, snapshot: Snapshot) -> Judge | Refused | None:
    if not pod.pod.spec.resource_claims:
        return None
    try:
        claims = pod_claims.of_pod(pod.pod, snapshot.claims)
    except NotYet as error:
        return Refused(str(error), quiet=True)
    except CannotBeMet as error:
        return Refused(str(error))
    return _judging(claims, snapshot.claims)


def _judging(claims: PodClaims, book: Book) -> Judge:
    budget, answers = Budget(), book.answers.to(claims.needed)

    def judged(info: NodeInfo) -> Sequence[str]:
        if info.node is None:
            return (CANNOT,)
        if not _usable(claims, info.node):
            return (ELSEWHERE,)
        try:
            found = _found(answers, book, info.node, budget)
        except Aborted as error:
            raise Hopeless(str(error)) from None
        except GivenUp as error:
            return (f"{CANNOT}: {error}",)
        return () if found is not None else (CANNOT,)

    return judged


def _usable(claims: PodClaims, node: Node) -> bool:
    return not claims.allocated or all(each.usable is None or each.usable(node) for each in claims.allocated)


def _found(answers: Answers, book: Book, node: Node, budget: Budget) -> Found:
    return answers.on(node, book.inventory.near(node.metadata.name), book.ledger, budget)


def decided(pod: PodInfo, snapshot: Snapshot, name: str) -> Sequence[Decided]:
    """What the pod's claims get on the node that was chosen for it."""
    node, book = snapshot.node(name), snapshot.claims
    if not pod.pod.spec.resource_claims or node is None:
        return ()
    claims = pod_claims.of_pod(pod.pod, book)
    found = _found(book.answers.to(claims.needed), book, node, Budget())
    if found is None:
        raise AssertionError(f"{name} passed the filter, and has no devices for {pod.pod.ref}")
    given = [
        Decided(each.claim, results.allocation(each.claim, picks, book.classes, name, lambda: str(uuid4())))
        for each, picks in zip(claims.needed, found, strict=True)
    ]
    return (*(Decided(each.claim, None) for each in claims.allocated), *given)


def score(pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> Sequence[int] | None:
    """Better where requests are met by an earlier one of their alternatives."""
    if not pod.pod.spec.resource_claims:
        return None
    claims = pod_claims.of_pod(pod.pod, snapshot.claims)
    if not claims.prioritized:
        return None
    budget, answers = Budget(), snapshot.claims.answers.to(claims.needed)
    sums = [_rated(answers, snapshot.claims, each, budget) for each in nodes]
    most = max(sums)
    return [100 * each // most for each in sums] if most else None


def _rated(answers: Answers, book: Book, info: NodeInfo, budget: Budget) -> int:
    try:
        found = _found(answers, book, info.node, budget) if info.node is not None else None
    except (Aborted, GivenUp):
        found = None
    if found is None:
        return 0
    pairs = zip(answers.needed, found, strict=True)
    return sum(_rank(request, picks) for needs, picks in pairs for request in needs.requests if request.prioritized)


def _rank(request: Request, picks: Picks) -> int:
    taken = {each.way.name for each in picks}
    return next((MOST_WAYS - index for index, way in enumerate(request.ways) if way.name in taken), 0)


def to_deallocate(pod: PodInfo, snapshot: Snapshot) -> ResourceClaim | None:
    """A claim whose devices keep a pod from the nodes that it could have, and that nobody else uses."""
    try:
        claims = pod_claims.of_pod(pod.pod, snapshot.claims)
    except (NotYet, CannotBeMet):
        return None
    for each in claims.allocated:
        consumers = each.claim.status.reserved_for
        alone = all(one.is_pod and one.uid == pod.pod.uid for one in consumers)
        if alone and each.usable and not all(node.node and each.usable(node.node) for node in snapshot.nodes):
            return each.claim
    return None


def told(pod: PodInfo, snapshot: Snapshot, nodes: Sequence[NodeInfo]) -> str:
    """For nodes that failed: which request, and what is wrong with each device there."""
    try:
        claims = pod_claims.of_pod(pod.pod, snapshot.claims)
    except (NotYet, CannotBeMet):
        return ""
    failed = [each.node for each in nodes if each.node is not None and _usable(claims, each.node)]
    sentences = [_sentence(claims, snapshot.claims, each) for each in failed[:TOLD_NODES]]
    more = len(failed) - TOLD_NODES
    return " ".join((*sentences, f"{more} more likewise.") if more > 0 else sentences)


def _sentence(claims: PodClaims, book: Book, node: Node) -> str:
    around = Surroundings(node, book.inventory.near(node.name), book.ledger, Budget())
    for needs in claims.needed:
        for request in needs.requests:
            ways = [(way, *_devices(needs, way, around)) for way in request.ways]
            if not any(usable for _way, usable, _reasons in ways):
                way, _usable, reasons = ways[-1]  # the last resort says it for all
                return f"On {node.name}, claim {needs.claim.ref}, request {way.name}: {_listed(reasons)}."
    ref = ", ".join(each.claim.ref for each in claims.needed)
    return f"On {node.name}, {ref}: each request could be met, but not all of them together."


def _devices(needs: Needs, way: Way, around: Surroundings) -> tuple[bool, Sequence[str]]:
    """Whether there are devices enough for a request that stands alone, and why the others do not do.

    Those of the kind that was asked for come first: all that is wrong with them is that somebody has them, or a taint.
    """
    usable = 0
    near, far = [pool.problem for pool in around.pools if pool.problem], list[str]()
    for device in (each for pool in around.pools if not pool.problem for each in pool.devices):
        if not device.reach.reaches(around.node):
            continue
        why = explanation.why_not(device, way, around.ledger) or explanation.apart(device, way, needs)
        if not why:
            usable += 1
        else:
            matches = selectors.matches(device, way.selectors) is True
            (near if matches else far).append(f"{device.name}: {why}")
    reasons = [*near, *far]
    return usable >= max(way.count, 1) and (way.count > 0 or not reasons), reasons


def _listed(reasons: Sequence[str]) -> str:
    def parts() -> Iterator[str]:
        yield from reasons[:TOLD_DEVICES]
        if len(reasons) > TOLD_DEVICES:
            yield f"and {len(reasons) - TOLD_DEVICES} more"

    return "; ".join(parts()) or "no devices there"
