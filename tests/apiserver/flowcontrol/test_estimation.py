"""How many seats requests take: lists by their objects, writes by the watches that receive them."""

import asyncio

import pytest

from podwire.apiserver.flowcontrol.estimation import COUNT_SECONDS, WorkEstimator
from podwire.apiserver.identity.users import User
from podwire.apiserver.request.call import Call
from podwire.apiserver.request.negotiation import Form
from podwire.kinds.catalog import builtin_resources
from podwire.kinds.schema import Schemas
from podwire.kinds.schema.definitions import load
from podwire.protocols.k8sapi.server_side import Request
from podwire.store.memory import MemoryStore

PODS = next(resource for resource in builtin_resources(Schemas(load())) if resource.name == "pods")
WIDEST = 10


class Clock:
    """A clock that stands still."""

    now = 0.0

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def call(verb: str, namespace: str = "", name: str = "", **options: str) -> Call:
    request = Request(method="GET", path="/", query={option: [value] for option, value in options.items()})
    target = PODS.kind.target(namespace, name)
    return Call(request=request, user=User("jane"), verb=verb, resource=PODS, target=target, form=Form())


@pytest.fixture
async def store():
    store = MemoryStore()
    for number in range(250):
        await store.create(PODS.key("a" if number < 240 else "b", f"p{number}"), b"{}")
    return store


@pytest.mark.parametrize(
    ("asked", "seats"),
    [
        pytest.param(call("list"), 3, id="all"),
        pytest.param(call("list", "b"), 1, id="of a small namespace"),
        pytest.param(call("list", limit="150"), 2, id="a page"),
        pytest.param(call("list", limit="150", labelSelector="a=b"), 3, id="a page of what a selector picks"),
        pytest.param(call("watch"), 1, id="watch"),
        pytest.param(call("watch", sendInitialEvents="true"), 3, id="watch with its initial state"),
        pytest.param(call("get", "a", "p1"), 1, id="get"),
        pytest.param(call("create", "a"), 1, id="create"),
    ],
)
async def test_a_list_takes_a_seat_for_every_hundred_objects(store, asked, seats):
    assert await WorkEstimator(store, Clock()).seats(asked, "", WIDEST) == seats


async def test_a_list_of_one_name_takes_one_seat_and_nobody_more_than_the_widest(store):
    estimator = WorkEstimator(store, Clock())
    assert await estimator.seats(call("list"), "p1", WIDEST) == 1
    assert await estimator.seats(call("list"), "", 2) == 2


async def test_objects_are_counted_again_after_some_seconds(store):
    clock = Clock()
    estimator = WorkEstimator(store, clock)
    assert await estimator.seats(call("list", "b"), "", WIDEST) == 1
    await asyncio.gather(*(store.create(PODS.key("b", f"q{number}"), b"{}") for number in range(100)))
    assert await estimator.seats(call("list", "b"), "", WIDEST) == 1
    clock.now += COUNT_SECONDS
    assert await estimator.seats(call("list", "b"), "", WIDEST) == 2


def test_a_write_keeps_a_seat_for_every_ten_watches_that_receive_it():
    estimator = WorkEstimator(MemoryStore(), Clock())
    for scope, number in (
        ((PODS.prefix, "", ""), 6),
        ((PODS.prefix, "a", ""), 4),
        ((PODS.prefix, "a", "web"), 5),
        ((PODS.prefix, "b", ""), 100),
        (("/registry/secrets/", "", ""), 100),
    ):
        for _ in range(number):
            estimator.add_watch(scope)

    assert estimator.final_seats(call("create", "c"), WIDEST) == 0, "six watches are too few"
    assert estimator.final_seats(call("update", "a", "db"), WIDEST) == 1
    assert estimator.final_seats(call("update", "a", "web"), WIDEST) == 2
    assert estimator.final_seats(call("get", "a", "web"), WIDEST) == 0
    assert estimator.final_seats(call("delete", "b", "x"), WIDEST) == 10

    for _ in range(5):
        estimator.remove_watch((PODS.prefix, "a", "web"))
    assert estimator.final_seats(call("update", "a", "web"), WIDEST) == 1
