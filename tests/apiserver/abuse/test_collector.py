"""Owners that owe themselves, owners that do not exist, owners of thousands: the collector ends its work and rests."""

import asyncio
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from podwire.cluster.apiserver_controllers import run_in_process
from tests.eventually import eventually

MAPS = "/api/v1/namespaces/default/configmaps"
MANY = 10_000 if os.environ.get("PODWIRE_SOAK") else 2_000


@pytest.fixture
def collected(house) -> Iterator[Any]:
    """A server with its controllers."""

    async def start() -> "asyncio.Task[None]":
        return asyncio.create_task(run_in_process(house.assembled))

    async def stop(task: "asyncio.Task[None]") -> None:
        alive = not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert alive, "the controllers ended"

    task = house.run(start())
    yield house
    house.run(stop(task))


def owner(obj: dict[str, Any], **how: Any) -> dict[str, Any]:
    metadata = obj["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"], **how}


def own(house: Any, name: str, *owners: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A config map, made or changed to have these owners."""
    house.ask("POST", MAPS, {"metadata": {"name": name, **metadata}})
    patch = {"metadata": {"ownerReferences": list(owners)}}
    reply = house.ask("PATCH", f"{MAPS}/{name}", patch, media="application/merge-patch+json")
    assert reply.status == 200, reply.raw
    return dict(reply.body)


def names(house: Any) -> set[str]:
    listed = house.ask("GET", MAPS).body["items"]
    return {item["metadata"]["name"] for item in listed} - {"kube-root-ca.crt"}


def wait_until(house: Any, condition: Any) -> None:
    """Runs the server, whose event loop stands still otherwise, until the condition holds."""

    def run_and_check() -> Any:
        house.run(asyncio.sleep(0.02))
        return condition()

    eventually(run_and_check, explain=lambda: sorted(names(house))[:20])


def rests(house: Any) -> bool:
    """Nothing is written and little is thought while nobody asks for anything."""
    house.run(asyncio.sleep(0.3))
    revision, busy = house.store.revision, time.process_time()
    house.run(asyncio.sleep(0.5))
    return house.store.revision == revision and time.process_time() - busy < 0.25


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_a_circle_of_owners_can_be_deleted_and_the_collector_rests(collected, policy):
    one, two, three = (own(collected, name) for name in "abc")
    own(collected, "a", owner(three, blockOwnerDeletion=True))
    own(collected, "b", owner(one, blockOwnerDeletion=True))
    own(collected, "c", owner(two, blockOwnerDeletion=True))
    assert rests(collected)
    collected.ask("DELETE", f"{MAPS}/a", {"propagationPolicy": policy})
    wait_until(collected, lambda: names(collected) == ({"b", "c"} if policy == "Orphan" else set()))
    assert rests(collected)


def test_an_object_that_owns_itself_can_be_deleted(collected):
    itself = own(collected, "a")
    own(collected, "a", owner(itself, blockOwnerDeletion=True))
    assert rests(collected)
    collected.ask("DELETE", f"{MAPS}/a", {"propagationPolicy": "Foreground"})
    wait_until(collected, lambda: not names(collected))


@pytest.mark.parametrize(
    "reference",
    [
        pytest.param({"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "no-such"}, id="a ghost"),
        pytest.param({"apiVersion": "v1", "kind": "ConfigMap", "name": "real", "uid": "another"}, id="a namesake"),
    ],
)
def test_a_dependent_of_a_missing_owner_is_collected(collected, reference):
    own(collected, "real")
    own(collected, "child", reference)
    wait_until(collected, lambda: names(collected) == {"real"})
    assert rests(collected)


@pytest.mark.parametrize(
    "reference",
    [
        pytest.param(
            {"apiVersion": "nope.example.com/v1", "kind": "Nope", "name": "x", "uid": "u"}, id="an unknown kind"
        ),
        pytest.param({"apiVersion": "v1", "kind": "../x", "name": "..", "uid": "/"}, id="dots"),
        pytest.param({"apiVersion": "v1", "kind": "ConfigMap", "name": "x" * 5000, "uid": "u" * 5000}, id="long words"),
        pytest.param({"apiVersion": "v1/", "kind": "Pod", "name": "x", "uid": "u"}, id="half a version"),
        pytest.param({"apiVersion": "v1", "kind": "\x00", "name": "\U0001f600", "uid": "\n"}, id="no words at all"),
    ],
)
def test_a_reference_to_nonsense_neither_spins_the_collector_nor_ends_it(collected, reference):
    collected.ask("POST", MAPS, {"metadata": {"name": "child", "ownerReferences": [reference]}})
    assert rests(collected)
    collected.ask("DELETE", f"{MAPS}/child")
    wait_until(collected, lambda: not names(collected))


def test_thousands_of_dependents_are_collected_in_time(collected):
    parent = own(collected, "parent")
    for number in range(MANY):
        body = {"metadata": {"name": f"child-{number}", "ownerReferences": [owner(parent)]}}
        assert collected.ask("POST", MAPS, body).status == 201
    began = time.process_time()
    collected.ask("DELETE", f"{MAPS}/parent", {"propagationPolicy": "Foreground"})
    wait_until(collected, lambda: not names(collected))
    assert (time.process_time() - began) / MANY < 0.02
    assert rests(collected)


def test_an_object_with_thousands_of_owners_is_collected(collected):
    ghosts = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"g{number}", "uid": f"u{number}"} for number in range(1_000)
    ]
    living = own(collected, "living")
    own(collected, "child", owner(living), *ghosts)
    wait_until(collected, lambda: rests(collected))
    assert names(collected) == {"living", "child"}


def test_a_finalizer_that_stays_keeps_its_object_without_busy_looping(collected):
    parent = own(collected, "parent")
    own(collected, "child", owner(parent, blockOwnerDeletion=True), finalizers=["example.com/never"])
    collected.ask("DELETE", f"{MAPS}/parent", {"propagationPolicy": "Foreground"})
    wait_until(collected, lambda: rests(collected))
    assert names(collected) == {"parent", "child"}
