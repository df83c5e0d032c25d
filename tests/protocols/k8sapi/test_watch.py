"""Watching without a wire: frames, the copy, the course."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.k8sapi.watch import (
    ADDED,
    BOOKMARK,
    DELETED,
    LONGEST_WAIT,
    MODIFIED,
    Added,
    BadFrame,
    Copy,
    Course,
    Deleted,
    Frame,
    Frames,
    List,
    Updated,
    WatchFrom,
    read_frame,
)


def pod(name: str, version: int = 1, uid: str = "u1", namespace: str = "default") -> dict:
    return {"metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(version)}}


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(texts, max_size=8), st.lists(st.integers(1, 30), min_size=1, max_size=50))
def test_frames_are_parsed_however_their_bytes_are_split(names, sizes):
    """Also inside a character: é and 🚀 are several bytes."""
    sent = [Frame(ADDED, {"metadata": {"name": name, "note": "é🚀"}}) for name in names]
    wire = b"".join(msgspec.json.encode(item) + b"\n" for item in sent)
    frames, got, at, turn = Frames(), [], 0, 0
    while at < len(wire):
        size = sizes[turn % len(sizes)]
        got += [read_frame(item) for item in frames.feed(wire[at : at + size])]
        at, turn = at + size, turn + 1
    assert got == sent


def test_blank_lines_are_ignored():
    assert list(Frames().feed(b"\n \n{}\n\n")) == [b"{}"]


def test_a_frame_beyond_the_limit_is_refused_before_it_is_complete():
    frames = Frames(limit=10)
    assert list(frames.feed(b"0123456789\n01234")) == [b"0123456789"]
    with pytest.raises(BadFrame, match="10 bytes"):
        list(frames.feed(b"567890"))


@pytest.mark.parametrize("text", [b"hello", b"[]", b'{"type":1}', b'{"type":"ADDED"}', b'{"type":"ADDED","object":{'])
def test_an_invalid_frame_is_an_error(text):
    with pytest.raises(BadFrame):
        read_frame(text)


@pytest.mark.parametrize(
    ("before", "frame", "changes"),
    [
        pytest.param([], Frame(ADDED, pod("a")), [Added(pod("a"))], id="new"),
        pytest.param([], Frame(MODIFIED, pod("a")), [Added(pod("a"))], id="modified, but new to us"),
        pytest.param([pod("a")], Frame(MODIFIED, pod("a", 2)), [Updated(pod("a", 2), pod("a"))], id="modified"),
        pytest.param([pod("a")], Frame(ADDED, pod("a")), [], id="sent twice"),
        pytest.param(
            [pod("a")],
            Frame(ADDED, pod("a", 3, uid="u2")),
            [Deleted(pod("a")), Added(pod("a", 3, uid="u2"))],
            id="replaced by another of the same name",
        ),
        pytest.param(
            [pod("a")], Frame(DELETED, pod("a", 2)), [Deleted(pod("a", 2))], id="deleted, with its last state"
        ),
        pytest.param([], Frame(DELETED, pod("a")), [], id="deleted, but unknown to us"),
        pytest.param([pod("a")], Frame("NEWTYPE", pod("a", 2)), [], id="an event of the future"),
    ],
)
def test_an_event_changes_the_copy(before, frame, changes):
    copy = Copy()
    copy.replace(before)
    assert copy.apply(frame) == changes


def test_a_list_yields_the_missed_changes():
    copy = Copy()
    copy.replace([pod("stays"), pod("changes"), pod("goes"), pod("reborn")])
    changes = copy.replace([pod("stays"), pod("changes", 2), pod("comes"), pod("reborn", 5, uid="u2")])
    assert changes == [
        Deleted(pod("goes")),
        Updated(pod("changes", 2), pod("changes")),
        Added(pod("comes")),
        Deleted(pod("reborn")),
        Added(pod("reborn", 5, uid="u2")),
    ]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.sampled_from([ADDED, MODIFIED, DELETED]), st.sampled_from("abc")),
        st.tuples(st.just("list"), st.just(""), st.sets(st.sampled_from("abc"))),
    ),
    max_size=30,
)


@given(steps)
def test_the_changes_reproduce_the_copy(steps):
    copy, follower = Copy(), {}
    for version, (what, type_, names) in enumerate(steps):
        if what == "list":
            changes = copy.replace([pod(name, version, uid=f"u{version % 3}") for name in names])
        else:
            changes = copy.apply(Frame(type_, pod(names, version, uid=f"u{version % 3}")))
        for change in changes:
            key = ("default", change.object["metadata"]["name"])
            assert (key in follower) is not isinstance(change, Added)
            if isinstance(change, Deleted):
                del follower[key]
            else:
                follower[key] = change.object
    assert follower == copy.objects


def course() -> Course:
    return Course(lambda: 1.0)


def test_a_watch_lists_first_and_resumes_from_the_last_version():
    one = course()
    assert one.next() == List(0.0)
    one.listed("10")
    assert one.next() == WatchFrom("10", 0.0)
    one.moved("12")
    one.ended(0.01)
    assert one.next() == WatchFrom("12", 0.0)


def test_a_version_the_server_has_forgotten_means_a_listing_at_once_but_not_in_a_loop():
    one = course()
    one.listed("10")
    one.failed(410)
    assert one.next() == List(0.0)
    one.listed("20")
    one.failed(410)
    assert one.next() == List(0.2)


def test_failures_wait_longer_and_longer_and_success_forgets_them():
    one = course()
    one.listed("10")
    waits = []
    for _ in range(10):
        one.failed(500)
        step = one.next()
        assert isinstance(step, WatchFrom)
        waits.append(step.wait)
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, LONGEST_WAIT, LONGEST_WAIT, LONGEST_WAIT]
    one.moved("11")
    one.ended(0.0)
    assert one.next() == WatchFrom("11", 0.0)


def test_watches_that_end_at_once_without_a_word_are_not_reopened_in_a_loop():
    one = course()
    one.listed("10")
    one.next()
    one.ended(0.01)
    assert one.next() == WatchFrom("10", 0.1)
    one.ended(0.01)
    assert one.next() == WatchFrom("10", 0.2)


def test_a_quiet_watch_that_lasted_is_resumed_at_once():
    one = course()
    one.listed("10")
    one.failed(0)
    one.next()
    one.ended(300.0)
    assert one.next() == WatchFrom("10", 0.0)


def test_a_server_that_names_a_time_is_given_it():
    one = course()
    one.failed(429, retry_after=7.0)
    assert one.next() == List(7.0)


def test_waits_are_spread():
    low, high = Course(lambda: 0.0), Course(lambda: 1.0)
    low.failed(500)
    high.failed(500)
    assert (low.next(), high.next()) == (List(0.05), List(0.1))


def test_bookmarks_move_the_course_only():
    copy = Copy()
    assert copy.apply(Frame(BOOKMARK, pod("", 9))) == []
    assert copy.objects == {}
