"""Decides which objects the garbage collector must check after a change, and what to do about one. Pure.

An object lives as long as one of its owners. An owner that is deleted in the foreground waits for the dependents that
block it; one that orphans first has its owner references removed from its dependents.
"""

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from podwire.controllers.graph import Graph
from podwire.controllers.metadata import FOREGROUND, ORPHAN, Owner, PartialObject
from podwire.protocols.k8sapi.client_side import Propagation


class OwnerState(enum.Enum):
    """The state of an owner reference's target."""

    ALIVE = enum.auto()
    ABSENT = enum.auto()
    """There is no object of that kind, name and uid."""
    WAITING = enum.auto()
    """It is being deleted in the foreground."""
    UNKNOWN = enum.auto()
    """Unknown: the kind is not served, or a cluster-scoped object names a namespaced owner. It keeps the object alive,
    because deleting an owned object is worse than keeping an orphan."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing to do."""


@dataclass(frozen=True, slots=True)
class Release:
    """Remove a finalizer: the object may be deleted."""

    finalizer: str


@dataclass(frozen=True, slots=True)
class Orphan:
    """Remove this owner from its dependents, then its finalizer."""

    dependents: Sequence[PartialObject]


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the object, with these owners only."""

    owners: tuple[Owner, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object: no owner is left. `unblock`: first stop blocking the owners, which wait for a dependent of
    this object."""

    propagation: Propagation
    unblock: bool = False


Action = Leave | Release | Orphan | Keep | Delete


def decide(
    item: PartialObject, owners: Sequence[tuple[Owner, OwnerState]], dependents: Sequence[PartialObject]
) -> Action:
    """Returns the action for an object with owners in these states."""
    if item.orphaning:
        return Orphan(dependents)
    if item.waiting:
        held = any(
            dependent.blocks(item.uid) for dependent in dependents if dependent.uid != item.uid
        )  # an object does not block itself
        return Leave() if held else Release(FOREGROUND)
    if item.deleting or not owners:
        return Leave()
    kept = tuple(owner for owner, owner_state in owners if owner_state in (OwnerState.ALIVE, OwnerState.UNKNOWN))
    if kept:
        return Leave() if len(kept) == len(owners) else Keep(kept)
    awaited = any(owner_state is OwnerState.WAITING for _, owner_state in owners)
    if awaited and dependents:
        return Delete(Propagation.FOREGROUND, unblock=any(dependent.waiting for dependent in dependents))
    return Delete(_as_asked(item))


def _as_asked(item: PartialObject) -> Propagation:
    """Returns the propagation that the object's finalizers ask for."""
    if ORPHAN in item.metadata.finalizers:
        return Propagation.ORPHAN
    if FOREGROUND in item.metadata.finalizers:
        return Propagation.FOREGROUND
    return Propagation.BACKGROUND


def without_owner(item: PartialObject, uid: str) -> tuple[Owner, ...]:
    return tuple(owner for owner in item.owners if owner.uid != uid)


def affected(graph: Graph, before: PartialObject | None, now: PartialObject | None) -> Iterator[str]:
    """Yields the uids to check after a change that the graph already contains."""
    if now is None:
        if before is not None:
            yield from _after_end(graph, before)
        return
    if before is None or before.owners != now.owners:
        if any(_needs_check(graph, now, owner) for owner in now.owners):
            yield now.uid
        yield from _waiting_owners(graph, before.owners if before else ())
    if now.waiting and not (before and before.waiting):
        yield now.uid
        yield from (dependent.uid for dependent in graph.dependents(now.uid))
    if now.orphaning and not (before and before.orphaning):
        yield now.uid


def affected_at_start(graph: Graph) -> Iterator[str]:
    """Yields the uids to check once all informers have synced."""
    for node in graph.nodes():
        if node.waiting or node.orphaning or any(_needs_check(graph, node, owner) for owner in node.owners):
            yield node.uid


def _after_end(graph: Graph, gone: PartialObject) -> Iterator[str]:
    yield from (dependent.uid for dependent in graph.dependents(gone.uid))
    yield from _waiting_owners(graph, gone.owners)


def _waiting_owners(graph: Graph, owners: Iterable[Owner]) -> Iterator[str]:
    for owner in owners:
        node = graph.node(owner.uid)
        if node is not None and node.waiting:
            yield owner.uid


def _needs_check(graph: Graph, item: PartialObject, owner: Owner) -> bool:
    """Returns whether an owner is not known to be alive."""
    return owner_state(graph, item, owner) is not OwnerState.ALIVE


def owner_state(graph: Graph, item: PartialObject, owner: Owner) -> OwnerState | None:
    """Returns the state of an owner by the graph; None when the server must be asked."""
    node = graph.node(owner.uid)
    if node is None or not _is(node, item, owner):
        return None
    return OwnerState.WAITING if node.waiting else OwnerState.ALIVE


def _is(node: PartialObject, item: PartialObject, owner: Owner) -> bool:
    """Checks every part of a reference; a uid alone, or one from another namespace, does not make an owner."""
    group = owner.api_version.rpartition("/")[0]
    named = (node.kind.group, node.kind.kind, node.name) == (group, owner.kind, owner.name)
    return named and node.namespace in ("", item.namespace)
