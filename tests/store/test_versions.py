"""Versions against a model that keeps every state whole."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.protocols.storage import Gone, Item, KeyExists, NotYet, Stale, StorageError
from podwire.store.versions import Versions, decide

KEYS = [f"/registry/{name}" for name in ("pods/a/1", "pods/a/2", "pods/b/1", "pods/ä/1", "podsx/a/1", "secrets/a/1")]
PREFIXES = ["/registry/", "/registry/pods/", "/registry/pods/a/", "/registry/secrets/", "/registry/none/"]

steps = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(["put", "delete"])), max_size=40)


def play(history: list[tuple[str, str]]) -> tuple[Versions, dict[int, dict[str, Item]]]:
    versions, state = Versions(), dict[str, Item]()
    states = {1: state}
    for key, action in history:
        current = state.get(key)
        if action == "delete" and current is None:
            continue
        revision = versions.revision + 1
        value = None if action == "delete" else b"%d" % revision
        change = decide(current, key, value, current.revision if current else None, revision)
        versions.apply(change)
        state = {name: item for name, item in state.items() if name != key}
        if change.item:
            state[key] = change.item
        states[revision] = state
    return versions, states


@given(steps, st.data())
@settings(max_examples=60, deadline=None)
def test_every_page_of_every_revision_shows_the_state_at_that_revision(history, data):
    versions, states = play(history)
    at = data.draw(st.sampled_from(sorted(states)))
    prefix = data.draw(st.sampled_from(PREFIXES))
    limit = data.draw(st.integers(0, 4))
    expected = [item for key, item in sorted(states[at].items()) if key.startswith(prefix)]
    seen: list[Item] = []
    while True:
        page = versions.page(prefix, at=at, after=seen[-1].key if seen else None, limit=limit)
        seen += page.items
        assert page.revision == at
        assert page.remaining == len(expected) - len(seen)
        assert page.more == (page.remaining > 0)
        if not page.more:
            break
    assert seen == expected


@given(steps, st.data())
@settings(max_examples=60, deadline=None)
def test_compaction_removes_only_unreachable_versions(history, data):
    versions, states = play(history)
    rows = {item.revision for state in states.values() for item in state.values()}
    tombstones = set(states) - rows - {1}
    floor = data.draw(st.sampled_from(sorted(states)))
    superseded = versions.compact(floor)
    needed = {item.revision for at, state in states.items() if at >= floor for item in state.values()}
    assert sorted(superseded) == sorted(rows - needed | {tombstone for tombstone in tombstones if tombstone <= floor})
    for at, state in states.items():
        if at < floor:
            with pytest.raises(Gone):
                versions.page("/registry/", at=at)
        else:
            assert versions.page("/registry/", at=at).items == tuple(item for _, item in sorted(state.items()))


def test_the_future_is_not_yet():
    with pytest.raises(NotYet):
        Versions().page("/registry/", at=2)


ITEM = Item("/registry/k", b"", 5, 3)


@pytest.mark.parametrize(
    ("current", "value", "expected", "outcome"),
    [
        pytest.param(None, b"v", None, Item("/registry/k", b"v", 9, 9), id="create"),
        pytest.param(ITEM, b"v", None, KeyExists, id="create what exists"),
        pytest.param(ITEM, b"v", 5, Item("/registry/k", b"v", 9, 3), id="update"),
        pytest.param(ITEM, b"v", 4, Stale, id="update from an old revision"),
        pytest.param(None, b"v", 5, Stale, id="update what is gone"),
        pytest.param(None, b"v", 0, Stale, id="zero is not a revision"),
        pytest.param(ITEM, None, 5, None, id="delete"),
        pytest.param(ITEM, None, 6, Stale, id="delete from another revision"),
    ],
)
def test_a_write_is_decided_by_the_keys_current_revision(current, value, expected, outcome):
    if isinstance(outcome, type) and issubclass(outcome, StorageError):
        with pytest.raises(outcome):
            decide(current, "/registry/k", value, expected, 9)
    else:
        change = decide(current, "/registry/k", value, expected, 9)
        assert (change.item, change.previous) == (outcome, current)
