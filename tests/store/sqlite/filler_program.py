"""Deletes everything on a disk whose every free byte another program takes at once. Asserts everything itself.

filler_program.py DIRECTORY SEED          a small file system of its own; one deletion after the other
filler_program.py DIRECTORY SEED large    large objects, several of which are deleted at once
"""

import asyncio
import contextlib
import os
import random
import sys
from pathlib import Path

from podwire.protocols.storage import Item, StoreFull
from podwire.store.sqlite import SqliteStore
from podwire.store.sqlite.writer import Limits

QUICK = Limits(idle=0.02, retry=0.05)


class Filler:
    """A program that writes a log, and never stops."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def fill(self) -> None:
        for size in (1 << 20, 4096, 512, 1):
            with contextlib.suppress(OSError):
                while os.write(self._file, b"\0" * size):
                    pass

    async def run(self) -> None:
        while True:
            self.fill()
            await asyncio.sleep(0.001)


def being_deleted(item: Item) -> bool:
    return item.value.startswith(b"deleting")


async def delete(store: SqliteStore, item: Item, *, gracefully: bool) -> None:
    if gracefully:
        item = await store.update(item.key, b"deleting" + item.value, expected=item.revision)
    await store.delete(item.key, expected=item.revision)


async def fill_store(store: SqliteStore, chance: random.Random, filler: Filler) -> None:
    """Writes until the store refuses; others take what is free from some moment on."""
    fills_after = chance.randrange(20, 150)
    for number in range(5000):
        if number >= fills_after:
            filler.fill()
        try:
            await store.create(f"/registry/pods/a/{number}", b"x" * chance.choice((300, 4000, 20_000, 90_000)))
        except StoreFull:
            return
        if chance.random() < 0.1:
            await asyncio.sleep(0.03)


async def main(directory: Path, seed: int) -> None:
    chance = random.Random(seed)
    filler = Filler(directory / "other-program.log")
    store = await SqliteStore.open(directory, limits=QUICK, urgent=being_deleted)
    await fill_store(store, chance, filler)
    filling = asyncio.create_task(filler.run())
    items = [*(await store.list("/registry/")).items]
    chance.shuffle(items)
    for item in items:
        filler.fill()
        await delete(store, item, gracefully=chance.random() < 0.5)
        if chance.random() < 0.2:
            await asyncio.sleep(chance.choice((0.0, 0.03, 0.1)))
        if chance.random() < 0.02:
            await store.close()
            filler.fill()
            store = await SqliteStore.open(directory, limits=QUICK, urgent=being_deleted)
    filling.cancel()
    assert (await store.list("/registry/")).items == ()
    await store.close()
    sys.stdout.write(f"{len(items)}\n")


async def delete_large(directory: Path, seed: int) -> None:
    """Together, the marks of these deletions are larger than all free pages of the database."""
    chance = random.Random(seed)
    filler = Filler(directory / "other-program.log")
    store = await SqliteStore.open(directory, limits=QUICK, urgent=being_deleted)
    for number in range(12):
        await store.create(f"/registry/maps/a/{number}", b"x" * chance.randrange(700_000, 1_400_000))
    await fill_store(store, chance, filler)
    filling = asyncio.create_task(filler.run())
    items = [*(await store.list("/registry/maps/")).items]
    async with asyncio.TaskGroup() as tasks:
        for item in items:
            tasks.create_task(delete(store, item, gracefully=True))
    filling.cancel()
    assert (await store.list("/registry/maps/")).items == ()
    await store.close()
    sys.stdout.write(f"{len(items)}\n")


asyncio.run((delete_large if "large" in sys.argv else main)(Path(sys.argv[1]), int(sys.argv[2])))
