"""Informers of admission: every acknowledged write is visible at once, also after the watch was cut."""

import asyncio

from podwire.apiserver.admission.informers import ObjectInformer
from podwire.kinds.stored import pack
from podwire.store.memory import MemoryStore
from tests.apiserver.support import InterleavingStore

PREFIX = "/registry/limitranges/"


def obj(name):
    return pack({"kind": "LimitRange", "apiVersion": "v1", "metadata": {"name": name, "namespace": "a"}})


async def names(informer, namespace="a"):
    return [item["metadata"]["name"] for item in await informer.all(namespace)]


async def test_changes_are_visible_without_a_pause():
    store = MemoryStore()
    informer = ObjectInformer(store, "limitranges")
    assert await names(informer) == []

    await store.create(f"{PREFIX}a/y", obj("y"))
    created = await store.create(f"{PREFIX}a/x", obj("x"))
    assert await names(informer) == ["x", "y"]
    assert await names(informer, "other") == []
    assert await informer.get("x", "a")

    await store.delete(f"{PREFIX}a/x", expected=created.revision)
    assert await names(informer) == ["y"]


async def test_an_informer_that_fell_behind_lists_again():
    store = MemoryStore()
    informer = ObjectInformer(store, "limitranges")
    assert await names(informer) == []

    item = await store.create(f"{PREFIX}a/x", obj("x"))
    for _ in range(5000):
        item = await store.update(f"{PREFIX}a/x", obj("x"), expected=item.revision)
    await store.create(f"{PREFIX}a/y", obj("y"))

    assert await names(informer) == ["x", "y"]


async def test_concurrent_first_lookups_share_one_watch():
    store = InterleavingStore()
    await store.create(f"{PREFIX}a/x", obj("x"))
    informer = ObjectInformer(store, "limitranges")

    assert await asyncio.gather(*(names(informer) for _ in range(3))) == [["x"]] * 3
    await store.create(f"{PREFIX}a/y", obj("y"))
    assert await names(informer) == ["x", "y"]
