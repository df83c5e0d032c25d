"""Deletes on a disk without a free byte, also after a restart. Asserts everything itself.

reserve_program.py DIRECTORY: a small file system of its own.
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

from podwire.protocols.storage import Item, StoreFull
from podwire.store.sqlite import SqliteStore
from podwire.store.sqlite.writer import Limits

VALUE = b"x" * 20_000
QUICK = Limits(idle=0.05, retry=0.05)


def being_deleted(item: Item) -> bool:
    return item.value.startswith(b"deleting")


async def opened(directory: Path) -> SqliteStore:
    return await SqliteStore.open(directory, limits=QUICK, urgent=being_deleted)


def fill_disk(path: Path) -> None:
    """Takes the last free byte, in ever smaller pieces, as a log file of another program would."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for size in (1 << 20, 4096, 512, 1):
        with contextlib.suppress(OSError):
            while os.write(file, b"\0" * size):
                pass
    os.close(file)


async def is_refused(store: SqliteStore, key: str) -> bool:
    try:
        await store.create(key, VALUE)
    except StoreFull:
        return True
    return False


async def main(directory: Path) -> None:
    other = directory / "other-program.log"
    store = await opened(directory)
    items = [await store.create(f"/registry/pods/a/{number}", VALUE) for number in range(60)]
    assert store.failure == ""
    fill_disk(other)
    for number in range(500):  # what is already reserved may be used
        if await is_refused(store, f"/registry/pods/b/{number}"):
            break
        fill_disk(other)
    assert await is_refused(store, "/registry/pods/b/last")

    # Deleting and preparing to delete work, one at a time and many at once; nothing else does.
    prepared = await store.update(items[0].key, b"deleting" + VALUE, expected=items[0].revision)
    await store.delete(prepared.key, expected=prepared.revision)
    fill_disk(other)  # whatever is given back, others take
    for item in items[1:20]:
        await store.delete(item.key, expected=item.revision)
    mixed = await asyncio.gather(
        *(store.delete(item.key, expected=item.revision) for item in items[20:30]),
        *(store.create(f"/registry/pods/c/{number}", VALUE) for number in range(10)),
        return_exceptions=True,
    )
    assert all(isinstance(result, int) for result in mixed[:10]), mixed
    assert all(isinstance(result, (Item, StoreFull)) for result in mixed[10:]), mixed
    present = {item.key: item for item in (await store.list("/registry/")).items}
    assert not present.keys() & {item.key for item in items[:30]}

    # After a restart without a free byte it serves, says why it is not ready, and deletes.
    await store.close()
    fill_disk(other)
    store = await opened(directory)
    assert {item.key: item for item in (await store.list("/registry/")).items} == present
    [victim, *rest] = present.values()
    await store.delete(victim.key, expected=victim.revision)
    fill_disk(other)
    refused = await is_refused(store, "/registry/pods/d/1")
    assert bool(store.failure) == refused, "readiness reports what writes get"
    for item in rest[:10]:
        await store.delete(item.key, expected=item.revision)

    # With space, everything is as before, and the reserve is in place again.
    other.unlink()
    for _ in range(100):
        if not await is_refused(store, "/registry/pods/e/1"):
            break
        await asyncio.sleep(0.05)
    assert (await store.get("/registry/pods/e/1")) is not None
    assert store.failure == ""
    assert (directory / "store.db-wal").stat().st_blocks * 512 >= 64 << 10
    final = (await store.list("/registry/")).items
    await store.close()
    store = await opened(directory)
    assert (await store.list("/registry/")).items == final
    await store.close()
    sys.stdout.write(f"{len(final)} refused={refused}\n")


asyncio.run(main(Path(sys.argv[1])))
