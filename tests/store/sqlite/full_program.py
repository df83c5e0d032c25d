"""Fills the disk under a store, sees it refuse, makes space, and sees it go on. Asserts everything itself.

full_program.py DIRECTORY: a small file system of its own.
"""

import asyncio
import sys
from pathlib import Path

from podwire.protocols.storage import Item, StoreFull
from podwire.store.sqlite import SqliteStore

VALUE = b"x" * 20_000


async def fill(store: SqliteStore, name: str) -> list[Item]:
    items: list[Item] = []
    while True:
        keys = [f"/registry/pods/{name}/{len(items) + number}" for number in range(4)]
        results = await asyncio.gather(*(store.create(key, VALUE) for key in keys), return_exceptions=True)
        items += [result for result in results if isinstance(result, Item)]
        refused = [result for result in results if not isinstance(result, Item)]
        if refused:
            assert all(isinstance(item, StoreFull) for item in refused), refused
            return items


async def main(directory: Path) -> None:
    ballast = directory / "ballast"
    ballast.write_bytes(b"\0" * 1_000_000)
    store = await SqliteStore.open(directory)
    watch = store.watch("/registry/", after=store.revision)
    acknowledged = await fill(store, "a")
    assert len(acknowledged) > 10
    assert (await store.list("/registry/")).items == tuple(sorted(acknowledged, key=lambda item: item.key))
    for _ in range(3):
        try:
            acknowledged.append(await store.create("/registry/pods/b/again", VALUE))
        except StoreFull:
            continue
        break
    ballast.unlink()
    acknowledged.append(await store.create("/registry/pods/c/after", VALUE))
    acknowledged += await fill(store, "d")
    seen = [change.item for change in await watch.next()]
    assert seen == sorted(acknowledged, key=lambda item: item.revision)
    before = await store.list("/registry/")
    await store.close()
    store = await SqliteStore.open(directory)
    after = await store.list("/registry/")
    assert after.items == before.items
    await store.close()
    sys.stdout.write(f"{len(acknowledged)}\n")


asyncio.run(main(Path(sys.argv[1])))
