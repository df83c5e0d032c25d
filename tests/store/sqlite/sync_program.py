"""Writes one key after the other, tells each that was acknowledged, and what the store says when its disk fails.

sync_program.py DIRECTORY COUNT
lines: "wrote N" … "refused TYPE: REASON" (twice: the failed write and the next) "read N"
"""

import asyncio
import sys
from pathlib import Path

from podwire.protocols.storage import StorageError
from podwire.store.sqlite import SqliteStore


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def main(directory: Path, count: int) -> None:
    store = await SqliteStore.open(directory)
    before = len((await store.list("/registry/")).items)
    for number in range(count):
        try:
            await store.create(f"/registry/pods/default/p{before + number}", b"x" * 10_000)
        except StorageError as error:
            say(f"refused {type(error).__name__}: {error}")
            break
        say(f"wrote {before + number}")
    try:
        await store.create("/registry/pods/default/next", b"")
        say("wrote next")
    except StorageError as error:
        say(f"refused {type(error).__name__}: {error}")
    say(f"read {len((await store.list('/registry/')).items)}")
    if store.failure:
        say(f"unwell: {store.failure}")
    await store.close()


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
