"""Which objects must be looked at after a change, and what is to be done about one. Pure.

An object lives as long as one of its owners does. An owner that is deleted in the foreground waits for the dependents
that block it; one that orphans is first forgotten by its dependents.
"""

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from podwire.controllers.graph import Graph
from podwire.controllers.metadata import FOREGROUND, ORPHAN, Owner, Seen
from podwire.protocols.k8sapi.client_side import Propagation


class Standing(enum.Enum):
    """What an owner reference points at."""

    ALIVE = enum.auto()
    ABSENT = enum.auto()
    """There is nothing of that kind, name and uid."""
    WAITING = enum.auto()
    """It is being deleted in the foreground."""
    UNKNOWN = enum.auto()
    """Cannot be found out: no such kind here, or a namespaced owner of something without a namespace. It keeps the
    object alive, because deleting what may be owned is worse than keeping what is not."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing to do."""


@dataclass(frozen=True, slots=True)
class Release:
    """Take a finalizer off: the object may go."""

    finalizer: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """Have the dependents forget this owner, then let it go."""

    dependents: Sequence[Seen]


@dataclass(frozen=True, slots=True)
class Keep:
    """The object stays, with these owners only."""

    owners: tuple[Owner, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """No owner is left. `unblock`: first stop holding the owners back, who in turn wait for a dependent of this."""

    propagation: Propagation
    unblock: bool = False


Action = Leave | Release | Orphan | Keep | Delete


def decide(item: Seen, owners: Sequence[tuple[Owner, Standing]], dependents: Sequence[Seen]) -> Action:
    """What is to be done about an object whose owners stand like this."""
    if item.orphaning:
        return Orphan(dependents)
    if item.waiting:
        held = any(each.blocks(item.uid) for each in dependents if each.uid != item.uid)  # nobody waits for itself
        return Leave() if held else Release(FOREGROUND)
    if item.deleting or not owners:
        return Leave()
    kept = tuple(owner for owner, standing in owners if standing in (Standing.ALIVE, Standing.UNKNOWN))
    if kept:
        return Leave() if len(kept) == len(owners) else Keep(kept)
    awaited = any(standing is Standing.WAITING for _, standing in owners)
    if awaited and dependents:
        return Delete(Propagation.FOREGROUND, unblock=any(each.waiting for each in dependents))
    return Delete(_as_asked(item))


def _as_asked(item: Seen) -> Propagation:
    """A finalizer that somebody put on in time says how the object wants to go."""
    if ORPHAN in item.metadata.finalizers:
        return Propagation.ORPHAN
    if FOREGROUND in item.metadata.finalizers:
        return Propagation.FOREGROUND
    return Propagation.BACKGROUND


def without_owner(item: Seen, uid: str) -> tuple[Owner, ...]:
    return tuple(each for each in item.owners if each.uid != uid)


def attention(graph: Graph, before: Seen | None, now: Seen | None) -> Iterator[str]:
    """The uids to look at after a change that the graph already holds."""
    if now is None:
        if before is not None:
            yield from _after_end(graph, before)
        return
    if before is None or before.owners != now.owners:
        if any(_questionable(graph, now, each) for each in now.owners):
            yield now.uid
        yield from _waiting_owners(graph, before.owners if before else ())
    if now.waiting and not (before and before.waiting):
        yield now.uid
        yield from (each.uid for each in graph.dependents(now.uid))
    if now.orphaning and not (before and before.orphaning):
        yield now.uid


def all_attention(graph: Graph) -> Iterator[str]:
    """The uids to look at once everything is known."""
    for each in graph.nodes():
        if each.waiting or each.orphaning or any(_questionable(graph, each, owner) for owner in each.owners):
            yield each.uid


def _after_end(graph: Graph, gone: Seen) -> Iterator[str]:
    yield from (each.uid for each in graph.dependents(gone.uid))
    yield from _waiting_owners(graph, gone.owners)


def _waiting_owners(graph: Graph, owners: Iterable[Owner]) -> Iterator[str]:
    for each in owners:
        node = graph.node(each.uid)
        if node is not None and node.waiting:
            yield each.uid


def _questionable(graph: Graph, item: Seen, owner: Owner) -> bool:
    """Whether an owner is anything but alive, as far as the graph knows."""
    return standing(graph, item, owner) is not Standing.ALIVE


def standing(graph: Graph, item: Seen, owner: Owner) -> Standing | None:
    """How an owner stands as far as the graph knows; None when somebody has to go and look."""
    node = graph.node(owner.uid)
    if node is None or not _is(node, item, owner):
        return None
    return Standing.WAITING if node.waiting else Standing.ALIVE


def _is(node: Seen, item: Seen, owner: Owner) -> bool:
    """A reference must be right in every part; a uid alone, or one from another namespace, does not make an owner."""
    group = owner.api_version.rpartition("/")[0]
    named = (node.kind.group, node.kind.kind, node.name) == (group, owner.kind, owner.name)
    return named and node.namespace in ("", item.namespace)
