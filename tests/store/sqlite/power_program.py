"""Cuts the power under a store: its file system drops all that was not synced. Asserts everything itself.

    power_program.py MOUNTPOINT IMAGE WRITES      the power fails after so many writes
Runs in a mount namespace of its own, with IMAGE (an ext4) mounted on MOUNTPOINT.
"""

import asyncio
import fcntl
import os
import struct
import subprocess
import sys
from pathlib import Path

from podwire.protocols.storage import Item, StorageError
from podwire.store.sqlite import SqliteStore

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


async def write(store: SqliteStore, writer: int, acknowledged: list[Item]) -> None:
    number = 0
    while True:
        try:
            acknowledged.append(await store.create(f"/registry/pods/w{writer}/{number}", os.urandom(2000)))
        except StorageError:
            return
        number += 1


def cut_power(mountpoint: Path) -> None:
    opened = os.open(mountpoint, os.O_RDONLY)
    fcntl.ioctl(opened, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    os.close(opened)


def note(notes: Path, acknowledged: list[Item]) -> None:
    notes.write_text("".join(f"{item.revision} {item.key} {item.value.hex()}\n" for item in acknowledged))


def noted(notes: Path) -> list[Item]:
    lines = (line.split() for line in notes.read_text().splitlines())
    return [Item(key, bytes.fromhex(value), int(revision), int(revision)) for revision, key, value in lines]


async def before(mountpoint: Path, notes: Path, writes: int) -> None:
    store = await SqliteStore.open(mountpoint)
    acknowledged: list[Item] = []
    writers = [asyncio.create_task(write(store, number, acknowledged)) for number in range(20)]
    while len(acknowledged) < writes:  # noqa: ASYNC110 - the program does nothing else
        await asyncio.sleep(0.001)
    cut_power(mountpoint)
    note(notes, acknowledged)
    await asyncio.wait(writers)
    os._exit(0)  # as the power would: nothing is closed, nothing is tidied up


async def after(mountpoint: Path, notes: Path) -> None:
    store = await SqliteStore.open(mountpoint)
    there = {item.key: item for item in (await store.list("/registry/")).items}
    acknowledged = noted(notes)
    for item in acknowledged:
        assert there.get(item.key) == item, f"lost: {item.key}"
    await store.create("/registry/pods/after/1", b"")
    await store.close()
    sys.stdout.write(f"{len(acknowledged)}\n")


def main(mountpoint: Path, image: Path, writes: int) -> None:
    notes = image.with_name("notes")
    child = os.fork()
    if child == 0:
        asyncio.run(before(mountpoint, notes, writes))
    os.waitpid(child, 0)
    subprocess.run(["umount", mountpoint], check=True)
    subprocess.run(["mount", "-o", "loop", image, mountpoint], check=True)
    asyncio.run(after(mountpoint, notes))
    subprocess.run(["umount", mountpoint], check=True)


main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
