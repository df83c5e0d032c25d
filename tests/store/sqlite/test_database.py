"""Files that are damaged, foreign, from the future, or somebody else's."""

import os
import sqlite3
import subprocess
import sys

import pytest

from podwire.protocols.storage import Gone
from podwire.store import CannotOpen, Window
from podwire.store.sqlite import SqliteStore
from podwire.store.sqlite.database import Database

PODS = "/registry/pods/default/"
VALUE = b"the quick brown fox jumps over the lazy dog " * 50


async def fill(directory, count=40) -> None:
    store = await SqliteStore.open(directory)
    for number in range(count):
        await store.create(f"{PODS}{number}", VALUE)
    await store.close()


def overwrite(path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip_in_value(directory) -> None:
    path = directory / "store.db"
    overwrite(path, path.read_bytes().rindex(b"lazy"), b"L")


def zero_a_page(directory) -> None:
    overwrite(directory / "store.db", 4096 * 5, bytes(4096))


def cut_in_half(directory) -> None:
    path = directory / "store.db"
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)


def not_sqlite(directory) -> None:
    (directory / "store.db").write_bytes(b"hello " * 1000)


def foreign(directory) -> None:
    (directory / "store.db").unlink()
    connection = sqlite3.connect(directory / "store.db")
    connection.execute("CREATE TABLE mine (x)")
    connection.close()


def lose_a_row(directory) -> None:
    connection = sqlite3.connect(directory / "store.db")
    connection.execute("INSERT INTO log VALUES (1000, 'k', 999, x'', 0)")
    connection.commit()
    connection.close()


def newer(directory) -> None:
    connection = sqlite3.connect(directory / "store.db")
    connection.execute("PRAGMA user_version=2")
    connection.close()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(flip_in_value, "checksum mismatch at revision", id="a byte in a value"),
        pytest.param(zero_a_page, "", id="a page of zeros"),
        pytest.param(cut_in_half, "", id="half a file"),
        pytest.param(not_sqlite, "not a database", id="something else"),
        pytest.param(foreign, "another program", id="the file of another program"),
        pytest.param(lose_a_row, "checksum", id="a row that nobody wrote"),
        pytest.param(newer, "format 2; this one supports up to 1", id="a newer format"),
    ],
)
async def test_a_file_that_cannot_be_trusted_is_refused_by_name(tmp_path, damage, reason):
    await fill(tmp_path)
    damage(tmp_path)
    before = (tmp_path / "store.db").read_bytes()
    with pytest.raises(CannotOpen) as refused:
        await SqliteStore.open(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path / 'store.db'}: ")
    assert reason in str(refused.value)
    assert (tmp_path / "store.db").read_bytes() == before
    with pytest.raises(CannotOpen):  # and the lock is free again
        await SqliteStore.open(tmp_path)


async def test_a_row_missing_from_the_log_is_noticed(tmp_path):
    store = await SqliteStore.open(tmp_path)
    first = await store.create(f"{PODS}a", b"1")
    await store.update(f"{PODS}a", b"2", expected=first.revision)
    await store.close()
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.execute("DELETE FROM log WHERE revision = ?", (first.revision,))
    connection.commit()
    connection.close()
    with pytest.raises(CannotOpen, match="the row that revision 3 replaced is missing"):
        await SqliteStore.open(tmp_path)


OPEN = """
import asyncio, os, sys
from pathlib import Path
from podwire.store.sqlite import SqliteStore
async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    for name in "abc":
        await store.create(f"/registry/pods/default/{name}", b"x")
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=30, **options)


async def test_a_torn_end_of_the_log_loses_only_incomplete_transactions(tmp_path):
    await fill(tmp_path, 3)
    assert run(sys.executable, "-c", OPEN, tmp_path).returncode == -9
    wal = tmp_path / "store.db-wal"
    os.truncate(wal, wal.stat().st_size - 100)
    store = await SqliteStore.open(tmp_path)
    names = [item.key.removeprefix(PODS) for item in (await store.list("/registry/")).items]
    assert names == ["0", "1", "2", "a", "b"]
    await store.close()


async def test_a_second_opener_is_refused_at_once_with_the_pid_of_the_first(tmp_path):
    store = await SqliteStore.open(tmp_path)
    with pytest.raises(CannotOpen) as refused:
        await SqliteStore.open(tmp_path)
    reason = f"{tmp_path}: in use by another process (pid {os.getpid()})"
    assert str(refused.value) == reason
    assert reason in run(sys.executable, "-c", OPEN, tmp_path).stderr
    await store.create(f"{PODS}a", b"")
    await store.close()
    await (await SqliteStore.open(tmp_path)).close()


async def test_children_inherit_nothing_of_the_store(tmp_path):
    store = await SqliteStore.open(tmp_path)
    await store.create(f"{PODS}a", b"")
    assert str(tmp_path) not in run("ls", "-l", "/proc/self/fd", close_fds=False).stdout
    await store.close()


async def test_the_files_are_for_the_owner_only(tmp_path):
    store = await SqliteStore.open(tmp_path)
    await store.create(f"{PODS}a", b"secret")
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "lock": 0o600,
        "store.db": 0o600,
        "store.db-wal": 0o600,
    }
    await store.close()


async def test_a_revision_is_never_used_twice_even_when_its_row_is_gone(tmp_path):
    store = await SqliteStore.open(tmp_path)
    item = await store.create(f"{PODS}a", b"")
    deleted = await store.delete(f"{PODS}a", expected=item.revision)
    await store.compact(deleted)
    await store.close()
    connection = sqlite3.connect(tmp_path / "store.db")
    assert connection.execute("SELECT count(*) FROM log").fetchone() == (0,)
    connection.close()
    store = await SqliteStore.open(tmp_path)
    assert store.revision == deleted
    assert (await store.create(f"{PODS}a", b"")).revision == deleted + 1
    await store.close()


async def test_compaction_that_was_cut_short_is_finished_later(tmp_path):
    store = await SqliteStore.open(tmp_path)
    item = await store.create(f"{PODS}a", b"")
    for _ in range(9):
        item = await store.update(f"{PODS}a", b"", expected=item.revision)
    await store.close()
    database = Database(tmp_path)
    database.remove([2, 3], compacted=item.revision - 1)
    database.close()
    store = await SqliteStore.open(tmp_path)
    with pytest.raises(Gone):
        await store.list(PODS, at=item.revision - 2)
    assert (await store.list(PODS, at=item.revision)).items == (item,)
    await store.close()
    connection = sqlite3.connect(tmp_path / "store.db")
    assert connection.execute("SELECT revision FROM log").fetchall() == [(item.revision - 1,), (item.revision,)]
    connection.close()


async def test_a_file_does_not_grow_with_overwritten_values(tmp_path):
    store = await SqliteStore.open(tmp_path, keep=Window(revisions=50))
    item = await store.create(f"{PODS}a", VALUE)
    for _ in range(2000):
        item = await store.update(f"{PODS}a", VALUE, expected=item.revision)
    await store.close()
    assert (tmp_path / "store.db").stat().st_size < 1_500_000
    store = await SqliteStore.open(tmp_path)
    assert await store.get(f"{PODS}a") == item
    await store.close()
