"""Killed at any moment, a store loses nothing that it acknowledged and never uses a revision twice."""

import os
import random
import sys
import time
from pathlib import Path

import pytest

from podwire.failpoints import KNOWN
from podwire.store import Window
from podwire.store.sqlite import SqliteStore

PROGRAM = Path(__file__).with_name("crash_program.py")
WRITERS = 50
ALL = Window(revisions=10**9)
ROUNDS = int(os.environ.get("PODWIRE_CRASH_ROUNDS", "3"))
SEED = int(os.environ.get("PODWIRE_CRASH_SEED", "0")) or random.SystemRandom().randrange(10**9)

Acknowledged = dict[int, tuple[str, bytes | None]]


def parse(output: bytes) -> Acknowledged:
    document: Acknowledged = {}
    for line in output.splitlines(keepends=True):
        if line.endswith(b"\n"):
            revision, key, value = line.split()
            assert int(revision) not in document, f"revision {revision} was used twice"
            document[int(revision)] = key.decode(), None if value == b"-" else value
    return document


async def check(directory: Path, reported: Acknowledged, start: int) -> int:
    """Open the store and hold it against what was acknowledged; returns its revision."""
    store = await SqliteStore.open(directory, keep=ALL)
    try:
        state = {item.key: item for item in (await store.list("/registry/", at=start)).items}
        history = await store.watch("/registry/", after=start).next() if store.revision > start else []
        revisions = [change.revision for change in history]
        assert revisions == sorted(set(revisions))
        for change in history:
            assert change.previous == state.pop(change.key, None), f"a gap before {change.revision}"
            if change.item is not None:
                state[change.key] = change.item
        assert tuple(sorted(state.values(), key=lambda item: item.key)) == (await store.list("/registry/")).items
        happened = {change.revision: (change.key, change.item.value if change.item else None) for change in history}
        for revision, write in reported.items():
            assert happened.get(revision) == write, f"acknowledged and lost: {revision}"
        return store.revision
    finally:
        await store.close()


def run_and_kill(run_program, directory: Path, seed: int, *, keep: int, seconds: float) -> Acknowledged:
    notes = directory / f"notes-{seed}"
    child = run_program(PROGRAM, directory, seed, WRITERS, keep, notes)
    while child.poll() is None and not (notes.exists() and notes.stat().st_size):
        time.sleep(0.005)
    time.sleep(seconds)
    child.kill()
    _, errors = child.communicate()
    assert errors == b""
    return parse(notes.read_bytes())


async def test_acknowledged_writes_survive_a_kill(tmp_path, run_program):
    sys.stdout.write(f"PODWIRE_CRASH_SEED={SEED}\n")
    dice = random.Random(SEED)
    newest = 1
    acknowledged = 0
    for number in range(ROUNDS):
        result = run_and_kill(run_program, tmp_path, SEED + number, keep=10**9, seconds=dice.uniform(0.02, 0.3))
        assert min(result) > newest, "a revision was used twice"
        newest = await check(tmp_path, result, newest)
        acknowledged += len(result)
    assert acknowledged > 50 * ROUNDS


async def test_a_kill_while_the_past_is_compacted_takes_nothing_either(tmp_path, run_program):
    sys.stdout.write(f"PODWIRE_CRASH_SEED={SEED}\n")
    for number in range(ROUNDS):
        result = run_and_kill(run_program, tmp_path, SEED + number, keep=100, seconds=0.3)
        store = await SqliteStore.open(tmp_path, keep=ALL)
        try:
            assert store.revision >= max(result)
            floor = store._versions.history.floor
            assert floor > 1
            then = {item.key: item for item in (await store.list("/registry/", at=floor)).items}
            happened = {change.revision: change for change in await store.watch("/registry/", after=floor).next()}
        finally:
            await store.close()
        last = {key: (revision, value) for revision, (key, value) in sorted(result.items()) if revision <= floor}
        for key, (revision, value) in last.items():
            found = then.get(key)
            assert found is None or found.revision >= revision
            if found is not None and found.revision == revision:
                assert found.value == value
        for revision, (key, value) in result.items():
            if revision > floor:
                change = happened[revision]
                assert (change.key, change.item.value if change.item else None) == (key, value)


POINTS = sorted(name for name in KNOWN if name.startswith("store."))


def test_the_points_to_kill_at_are_known():
    assert POINTS == [
        "store.admitted",
        "store.after-commit",
        "store.before-commit",
        "store.before-publish",
        "store.compacting",
    ]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("passes", [0, 7])
async def test_a_kill_at_every_step_of_a_write_loses_nothing_acknowledged(tmp_path, run_program, point, passes):
    keep = 100 if point == "store.compacting" else 10**9
    plan = f"{point}={passes}*off->kill"
    notes = tmp_path / "notes"
    child = run_program(PROGRAM, tmp_path, 1, WRITERS, keep, notes, PODWIRE_FAILPOINTS=plan)
    _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (-9, b"")
    result = parse(notes.read_bytes())
    store = await SqliteStore.open(tmp_path, keep=ALL)
    floor = store._versions.history.floor
    await store.close()
    newest = await check(tmp_path, {revision: write for revision, write in result.items() if revision > floor}, floor)
    assert newest >= max(result, default=1)
