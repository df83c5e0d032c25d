"""The garbage collector's decisions, and when it checks."""

import pytest

from podwire.controllers.gc_decisions import (
    Delete,
    Keep,
    Leave,
    Orphan,
    OwnerState,
    Release,
    affected,
    affected_at_start,
    decide,
    owner_state,
    without_owner,
)
from podwire.controllers.graph import Graph
from podwire.controllers.kinds import CONFIG_MAPS, NAMESPACES, PODS
from podwire.controllers.metadata import Metadata, Owner, PartialObject
from podwire.protocols.k8sapi.client_side import Propagation

NOW = "2026-01-01T00:00:00Z"


def ref(uid: str, *, block: bool = False, name: str = "", kind: str = "ConfigMap", api_version: str = "v1") -> Owner:
    return Owner(api_version=api_version, kind=kind, name=name or uid, uid=uid, block_owner_deletion=block or None)


def seen(
    uid: str, *owners: Owner, deleting: bool = False, finalizers: tuple[str, ...] = (), namespace: str = "a"
) -> PartialObject:
    metadata = Metadata(
        name=uid,
        namespace=namespace,
        uid=uid,
        deletion_timestamp=NOW if deleting else None,
        finalizers=finalizers,
        owner_references=owners,
    )
    return PartialObject(CONFIG_MAPS, metadata)


def waiting(uid: str, *owners: Owner) -> PartialObject:
    return seen(uid, *owners, deleting=True, finalizers=("foregroundDeletion",))


ALIVE, ABSENT, WAITING, UNKNOWN = OwnerState.ALIVE, OwnerState.ABSENT, OwnerState.WAITING, OwnerState.UNKNOWN
X, Y = ref("x"), ref("y")
BACKGROUND, FOREGROUND, ORPHAN = Propagation.BACKGROUND, Propagation.FOREGROUND, Propagation.ORPHAN
ORPHANED = seen("i", deleting=True, finalizers=("orphan",))


@pytest.mark.parametrize(
    ("item", "owners", "dependents", "action"),
    [
        pytest.param(seen("i"), [], [], Leave(), id="nobody's"),
        pytest.param(seen("i"), [(X, ALIVE)], [], Leave(), id="owned"),
        pytest.param(seen("i"), [(X, ABSENT)], [], Delete(BACKGROUND), id="its owner is gone"),
        pytest.param(seen("i"), [(X, ABSENT), (Y, ABSENT)], [], Delete(BACKGROUND), id="all its owners are gone"),
        pytest.param(seen("i"), [(X, ABSENT), (Y, ALIVE)], [], Keep((Y,)), id="one of two owners is gone"),
        pytest.param(seen("i"), [(X, WAITING), (Y, ALIVE)], [], Keep((Y,)), id="one of two owners wants to go"),
        pytest.param(seen("i"), [(X, UNKNOWN)], [], Leave(), id="an owner that nobody can look up keeps it"),
        pytest.param(seen("i"), [(X, ABSENT), (Y, UNKNOWN)], [], Keep((Y,)), id="also beside one that is gone"),
        pytest.param(seen("i", deleting=True), [(X, ABSENT)], [], Leave(), id="it is going already"),
        pytest.param(seen("i"), [(X, WAITING)], [], Delete(BACKGROUND), id="its owner waits for it"),
        pytest.param(
            seen("i"), [(X, WAITING)], [seen("d")], Delete(FOREGROUND), id="its owner waits for it and its own"
        ),
        pytest.param(
            seen("i"), [(X, WAITING)], [waiting("x")], Delete(FOREGROUND, unblock=True), id="a circle of owners"
        ),
        pytest.param(seen("i", finalizers=("orphan",)), [(X, ABSENT)], [], Delete(ORPHAN), id="it wants to orphan"),
        pytest.param(
            seen("i", finalizers=("foregroundDeletion",)), [(X, ABSENT)], [], Delete(FOREGROUND), id="it wants to wait"
        ),
        pytest.param(waiting("i"), [], [], Release("foregroundDeletion"), id="it waits for nobody"),
        pytest.param(waiting("i"), [], [seen("d", ref("i", block=True))], Leave(), id="it waits for a dependent"),
        pytest.param(
            waiting("i"), [], [seen("d", ref("i"))], Release("foregroundDeletion"), id="a dependent that does not block"
        ),
        pytest.param(
            waiting("i"), [(X, ABSENT)], [], Release("foregroundDeletion"), id="it waits, whatever its owners"
        ),
        pytest.param(ORPHANED, [], [seen("d", ref("i"))], Orphan([seen("d", ref("i"))]), id="it orphans"),
    ],
)
def test_garbage_collection_decisions(item, owners, dependents, action):
    assert decide(item, owners, dependents) == action


def graph_of(*nodes: PartialObject) -> Graph:
    graph = Graph()
    for node in nodes:
        graph.put(node)
    graph.complete = True
    return graph


CHILD, BLOCKING = seen("child", X), seen("child", ref("x", block=True))


@pytest.mark.parametrize(
    ("present", "before", "now", "looked_at"),
    [
        pytest.param([seen("x")], None, CHILD, set(), id="owned from the start"),
        pytest.param([], None, CHILD, {"child"}, id="its owner is not here"),
        pytest.param([waiting("x")], None, CHILD, {"child"}, id="born while its owner is going"),
        pytest.param([], None, seen("loner"), set(), id="nobody's"),
        pytest.param([CHILD], seen("x"), None, {"child"}, id="an owner is gone"),
        pytest.param([waiting("x")], CHILD, None, {"x"}, id="a dependent of a waiting owner is gone"),
        pytest.param([CHILD], seen("x"), waiting("x"), {"x", "child"}, id="an owner begins to wait"),
        pytest.param([CHILD], waiting("x"), waiting("x"), set(), id="it was waiting already"),
        pytest.param([waiting("x")], BLOCKING, CHILD, {"x", "child"}, id="a dependent stops to block"),
        pytest.param([waiting("x")], CHILD, seen("child"), {"x"}, id="a dependent forgets its owner"),
        pytest.param([], seen("i"), ORPHANED, {"i"}, id="it begins to orphan"),
        pytest.param([seen("x")], CHILD, seen("child", X, Y), {"child"}, id="it is given an owner that is not here"),
        pytest.param([seen("x")], CHILD, CHILD, set(), id="nothing about owners"),
    ],
)
def test_objects_that_are_checked_after_a_change(present, before, now, looked_at):
    graph = graph_of(*present)
    if now is not None:
        graph.put(now)
    assert set(affected(graph, before, now)) == looked_at


def test_once_everything_is_known_all_doubtful_ones_are_looked_at():
    graph = graph_of(
        seen("x"), CHILD, seen("lost", ref("nowhere")), waiting("w"), seen("o", deleting=True, finalizers=("orphan",))
    )
    assert set(affected_at_start(graph)) == {"lost", "w", "o"}


@pytest.mark.parametrize(
    ("owner", "item_namespace", "expected"),
    [
        pytest.param(ref("x"), "a", ALIVE, id="right in every part"),
        pytest.param(ref("w"), "a", WAITING, id="waiting"),
        pytest.param(ref("x"), "b", None, id="from another namespace"),
        pytest.param(ref("x", name="other"), "a", None, id="of another name"),
        pytest.param(ref("x", kind="Secret"), "a", None, id="of another kind"),
        pytest.param(ref("x", api_version="apps/v1"), "a", None, id="of another group"),
        pytest.param(ref("nowhere"), "a", None, id="not here"),
        pytest.param(ref("ns", kind="Namespace"), "b", ALIVE, id="without a namespace: of everybody"),
    ],
)
def test_a_reference_counts_only_if_it_is_right_in_every_part(owner, item_namespace, expected):
    namespace = PartialObject(NAMESPACES, Metadata(name="ns", uid="ns"))
    graph = graph_of(seen("x"), waiting("w"), namespace)
    assert owner_state(graph, seen("i", namespace=item_namespace), owner) is expected


def test_forgetting_an_owner_keeps_the_others_in_order():
    assert without_owner(seen("i", Y, X, ref("z")), "x") == (Y, ref("z"))


def test_a_pod_is_shown_by_kind_namespace_and_name():
    assert str(PartialObject(PODS, Metadata(name="web", namespace="dev"))) == "pods/dev/web"
