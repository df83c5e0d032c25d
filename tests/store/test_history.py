import pytest

from podwire.protocols.storage import Change, Gone, Item
from podwire.store.history import CHANGE_OVERHEAD, History, Window


def put(revision: int, key: str = "/registry/pods/default/web", value: bytes = b"") -> Change:
    return Change(revision, key, Item(key, value, revision, revision), None)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def filled(*changes: Change, clock=None) -> History:
    history = History(clock=clock or Clock())
    for change in changes:
        history.append(change)
    return history


KEYS = ["/registry/pods/a/1", "/registry/pods/b/1", "/registry/secrets/a/1", "/registry/short", "/", "/registry/pods/"]


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        pytest.param("/registry/pods/", [2, 3, 7], id="a drawer"),
        pytest.param("/registry/pods/a/", [2], id="within a drawer"),
        pytest.param("/registry/pods/a/1", [2], id="one key"),
        pytest.param("/registry/short", [5], id="a short key"),
        pytest.param("/registry/", [2, 3, 4, 5, 7], id="above the drawers"),
        pytest.param("/", [2, 3, 4, 5, 6, 7], id="all"),
        pytest.param("/registry/pod/", [], id="nothing"),
    ],
)
def test_changes_are_found_by_prefix(prefix, expected):
    history = filled(*(put(number + 2, key) for number, key in enumerate(KEYS)))
    assert [item.revision for item in history.after(1, prefix)] == expected
    assert [item.revision for item in history.after(3, prefix)] == [item for item in expected if item > 3]


def test_forgotten_events_are_gone_from_every_index():
    history = filled(*(put(number + 2, key, b"1234") for number, key in enumerate(KEYS)))
    assert [item.revision for item in history.forget(4)] == [2, 3, 4]
    with pytest.raises(Gone) as refused:
        history.after(3, "/registry/pods/")
    assert refused.value.oldest == 4
    assert [item.revision for item in history.after(4, "/registry/pods/")] == [7]
    assert history.after(4, "/registry/secrets/") == []
    assert (len(history), history.size) == (3, 3 * (CHANGE_OVERHEAD + 4))


@pytest.mark.parametrize(
    ("window", "surplus"),
    [
        pytest.param(Window(seconds=50), 50, id="what is older goes"),
        pytest.param(Window(seconds=200), 1, id="a young history is kept whole"),
        pytest.param(Window(seconds=50, revisions=200), 50, id="a short one is not kept for being short"),
        pytest.param(Window(seconds=50, revisions=30), 71, id="never more revisions than fit"),
        pytest.param(Window(seconds=50, size=10 * CHANGE_OVERHEAD), 91, id="never more bytes than fit"),
        pytest.param(Window(size=0), 101, id="even if nothing fits"),
    ],
)
def test_the_window_decides_which_events_may_be_forgotten(window, surplus):
    clock = Clock()
    history = History(clock=clock)
    for revision in range(2, 102):
        clock.now = float(revision)
        history.append(put(revision))
    assert history.surplus(window) == surplus


def test_the_age_of_changes_is_known_after_others_were_forgotten():
    clock = Clock()
    history = History(clock=clock)
    for revision in range(2, 12):
        clock.now = revision / 100
        history.append(put(revision))
    history.forget(5)
    clock.now = 60.0
    history.append(put(12))
    assert history.surplus(Window(seconds=90)) == 5
    clock.now = 100.0
    assert history.surplus(Window(seconds=90)) == 11


def test_all_changes_go_when_five_minutes_have_passed():
    clock = Clock()
    history = filled(put(2), put(3), clock=clock)
    clock.now = 300.0
    assert history.surplus(Window()) == 1
    clock.now = 301.0
    assert history.surplus(Window()) == 3


def test_a_restarted_history_is_empty():
    history = filled(put(2), put(3))
    history.restart(10)
    assert (history.floor, history.revision, len(history), history.size) == (10, 10, 0, 0)
    with pytest.raises(Gone):
        history.after(9, "/registry/pods/")
