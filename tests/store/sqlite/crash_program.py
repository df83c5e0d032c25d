"""Writes to a store from many tasks until it is killed; says what was acknowledged, one line each, at once.

crash_program.py DIRECTORY SEED WRITERS KEEP
lines: REVISION KEY VALUE            a deletion has the value '-'
"""

import asyncio
import os
import random
import sys
from pathlib import Path

from podwire.protocols.storage import KeyExists, Stale
from podwire.store import Window
from podwire.store.sqlite import SqliteStore

KEYS = [f"/registry/pods/default/p{number}" for number in range(200)]


NOTES = os.open(sys.argv.pop(), os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def say(revision: int, key: str, value: bytes) -> None:
    os.write(NOTES, f"{revision} {key} {value.decode()}\n".encode())


async def write(store: SqliteStore, dice: random.Random) -> None:
    while True:
        key, value = dice.choice(KEYS), b"%030x" % dice.getrandbits(100) * dice.randrange(1, 40)
        try:
            item = await store.get(key)
            if item is None:
                say((await store.create(key, value)).revision, key, value)
            elif dice.random() < 0.3:
                say(await store.delete(key, expected=item.revision), key, b"-")
            else:
                say((await store.update(key, value, expected=item.revision)).revision, key, value)
        except (KeyExists, Stale):
            continue


async def main(directory: str, seed: str, writers: str, keep: str) -> None:
    window = Window(revisions=int(keep))
    store = await SqliteStore.open(Path(directory), keep=window)
    async with asyncio.TaskGroup() as group:
        for number in range(int(writers)):
            group.create_task(write(store, random.Random(f"{seed} {number}")))


asyncio.run(main(*sys.argv[1:]))
