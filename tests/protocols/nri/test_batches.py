"""Synchronize in batches: everything, once, in order, and each message fits."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.grpc_status import ResourceExhausted
from podwire.protocols.nri import methods
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.batches import MAX_BATCH, Gathered, ObjectTooLarge, batches
from podwire.protocols.ttrpc.sides import Asking

PODS = st.lists(
    st.builds(
        lambda number, size: pb.PodSandbox(id=f"p{number}", name="x" * size), st.integers(0, 99), st.integers(0, 80)
    ),
    max_size=20,
)
CONTAINERS = st.lists(
    st.builds(
        lambda number, size: pb.Container(id=f"c{number}", args=["x" * size]), st.integers(0, 99), st.integers(0, 80)
    ),
    max_size=20,
)


@given(PODS, CONTAINERS, st.integers(100, 1000))
def test_batches_have_every_object_once_in_order_within_the_limit(pods, containers, limit):
    gathered, requests = Gathered(), list(batches(pods, containers, limit))
    assert [gathered.add(request) for request in requests] == [False] * (len(requests) - 1) + [True]
    assert gathered.pods == pods
    assert gathered.containers == containers
    assert all(request.ByteSize() <= limit + 2 for request in requests)  # `more` itself is two bytes


@given(PODS, CONTAINERS, st.integers(100, 1000))
def test_batches_are_filled_before_the_next_begins(pods, containers, limit):
    requests = list(batches(pods, containers, limit))
    for one, next_one in pairwise(requests):
        first = (*next_one.pods, *next_one.containers)[0]
        used = sum(pod.ByteSize() + 8 for pod in (*one.pods, *one.containers))
        assert used + first.ByteSize() + 8 > limit


def test_an_empty_node_is_one_batch():
    assert list(batches([], [])) == [pb.SynchronizeRequest()]


def test_a_small_node_is_one_message():
    [request] = batches([pb.PodSandbox(id="p")], [pb.Container(id="c")])
    assert (len(request.pods), len(request.containers), request.more) == (1, 1, False)


def test_a_large_node_fits_into_frames_with_all_that_is_around_a_request():
    pods = [pb.PodSandbox(id=f"{number}", annotations={"k": "x" * 100_000}) for number in range(100)]
    metadata = [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("baggage", "x" * 2000)]
    requests = list(batches(pods, []))
    assert len(requests) == 3
    for item in requests:
        method = methods.SYNCHRONIZE
        Asking().request(method.service, method.name, item.SerializeToString(), timeout=2.0, metadata=metadata)


def test_an_object_that_just_fits_has_a_message_of_its_own():
    just = pb.PodSandbox(id="p", name="x" * 1000)
    limit = just.ByteSize() + 8
    requests = list(batches([pb.PodSandbox(id="a"), just, pb.PodSandbox(id="b")], [], limit))
    assert [[pod.id for pod in request.pods] for request in requests] == [["a"], ["p"], ["b"]]
    with pytest.raises(ObjectTooLarge):
        list(batches([just], [], limit - 1))


@pytest.mark.parametrize(
    ("pods", "containers", "named"),
    [
        pytest.param(
            [
                pb.PodSandbox(id="1"),
                pb.PodSandbox(id="abc", namespace="shop", name="web", annotations={"k": "x" * MAX_BATCH}),
            ],
            [],
            r"pod shop/web \(abc\) takes \d+ bytes, and a message holds 4190200",
            id="a pod",
        ),
        pytest.param(
            [pb.PodSandbox(id="1")],
            [pb.Container(id="def", name="app", env=["x" * MAX_BATCH])],
            r"container app \(def\)",
            id="a container",
        ),
    ],
)
def test_an_object_that_fits_no_message_fails_synchronize_by_name(pods, containers, named):
    with pytest.raises(ObjectTooLarge, match=named) as caught:
        next(batches(pods, containers))
    assert isinstance(caught.value, ResourceExhausted)
