"""Handling of etcd's watch responses, good and bad."""

import pytest

from podwire.protocols.storage import Gone
from podwire.store.broadcast import Broadcaster
from podwire.store.etcd import etcd_pb2 as pb
from podwire.store.etcd.layout import Layout
from podwire.store.etcd.root_watch import RootWatch
from podwire.store.history import History, Window

LAYOUT = Layout("/mine")


def kv(revision: int, created: int, value: bytes = b"") -> pb.KeyValue:
    return pb.KeyValue(key=b"/mine/pods/a/1", value=value, mod_revision=revision, create_revision=created)


def put(revision: int, created: int | None = None, before: int | None = None) -> pb.Event:
    event = pb.Event(kv=kv(revision, created or revision))
    if before:
        event.prev_kv.CopyFrom(kv(before, created or revision))
    return event


def deletion(revision: int, before: int | None = None) -> pb.Event:
    event = pb.Event(type=pb.Event.DELETE, kv=pb.KeyValue(key=b"/mine/pods/a/1", mod_revision=revision))
    if before:
        event.prev_kv.CopyFrom(kv(before, before))
    return event


def answer(*events: pb.Event, **fields) -> pb.WatchResponse:
    return pb.WatchResponse(header=pb.Header(revision=100), events=events, **fields)


def rooted() -> tuple[RootWatch, Broadcaster]:
    broadcaster = Broadcaster(History(10))
    return RootWatch(None, LAYOUT, broadcaster, Window()), broadcaster


async def test_events_become_changes_under_our_own_prefix():
    root, broadcaster = rooted()
    watch = broadcaster.subscribe("/registry/pods/", 10)
    assert root._handle(answer(created=True))
    assert root._handle(answer(put(11), put(12, created=11, before=11), deletion(13, before=12)))
    changes = await watch.next()
    assert [(c.revision, c.key, c.item and c.item.revision, c.previous and c.previous.revision) for c in changes] == [
        (11, "/registry/pods/a/1", 11, None),
        (12, "/registry/pods/a/1", 12, 11),
        (13, "/registry/pods/a/1", None, 12),
    ]


async def test_repeated_etcd_events_are_delivered_once():
    root, broadcaster = rooted()
    watch = broadcaster.subscribe("/registry/", 10)
    root._handle(answer(put(11)))
    root._handle(answer(put(11), deletion(12, before=11)))
    root._handle(answer(put(11)))
    assert [change.revision for change in await watch.next()] == [11, 12]


async def test_changes_of_one_transaction_share_a_revision_and_come_together():
    root, broadcaster = rooted()
    watch = broadcaster.subscribe("/registry/", 10)
    root._handle(answer(put(11), put(11)))
    assert watch.revision == 10
    assert [change.revision for change in await watch.next()] == [11, 11]


@pytest.mark.parametrize(
    ("response", "floor"),
    [
        pytest.param(answer(compact_revision=50, canceled=True), 50, id="compacted"),
        pytest.param(answer(put(12, created=3)), 12, id="an update of something unknown"),
        pytest.param(answer(deletion(12)), 12, id="a deletion of something unknown"),
        pytest.param(pb.WatchResponse(header=pb.Header(revision=5), created=True), 5, id="etcd was restored"),
    ],
)
async def test_a_gap_in_the_log_is_reported_to_every_watch(response, floor):
    root, broadcaster = rooted()
    root._handle(answer(put(11)))
    watch = broadcaster.subscribe("/registry/", 11)
    assert not root._handle(response)
    assert (broadcaster.history.floor, broadcaster.history.revision) == (floor, floor)
    if floor > 11:
        with pytest.raises(Gone):
            await watch.next()


async def test_the_history_is_kept_within_its_window():
    broadcaster = Broadcaster(History(10))
    root = RootWatch(None, LAYOUT, broadcaster, Window(revisions=20))
    for revision in range(11, 1011):
        root._handle(answer(put(revision)))
    assert 20 <= len(broadcaster.history) < 20 + 257
