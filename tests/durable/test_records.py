"""Records: formats, damage, foreign files, layouts, durability."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.durable import append_log, records
from podwire.durable.files import Durability
from podwire.durable.layout import Layout
from podwire.durable.records import Codec, NewerFormat, Records
from podwire.linux import errors

JSON = Codec(lambda value: json.dumps(value).encode(), json.loads)
LAYOUTS = {
    "file": (Layout(), "a", "a.json"),
    "bare": (Layout(suffix=""), "a", "a"),
    "nested": (Layout(depth=2), "pod/a", "pod/a.json"),
    "directory": (Layout(file="record.json"), "a", "a/record.json"),
}


@pytest.fixture
def problems():
    return []


@pytest.fixture
def store(tmp_path, problems):
    def make(**options):
        given = {"format": 2, "report": problems.append, **options}
        return Records(tmp_path / "store", JSON, **given)

    return make


@pytest.mark.parametrize(("layout", "key", "path"), LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("append", [False, True])
def test_a_record_is_read_by_this_and_by_another_process(store, tmp_path, layout, key, path, append):
    ours, theirs = (store(layout=layout, append=append) for _ in range(2))
    assert ours.get(key) is None
    assert ours.load() == {}
    for value in ({"n": 1}, {"n": 2}):
        ours.put(key, value)
        assert ours.get(key) == theirs.get(key) == value
        assert theirs.load() == {key: value}
    assert (tmp_path / "store" / path).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700
    ours.remove(key)
    ours.remove(key)
    assert ours.get(key) is theirs.get(key) is None
    assert list((tmp_path / "store").iterdir()) == []


def test_a_line_is_json_with_format_and_checksum(store, tmp_path):
    store(append=True).put("a", {"n": 1})
    store(append=True).put("a", {"n": 2})
    lines = (tmp_path / "store/a.json").read_text().split("\n")
    assert [json.loads(line)["record"] for line in lines] == [{"n": 1}, {"n": 2}]
    assert json.loads(lines[0])["format"] == 2


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "../a", ".hidden", "a\0"])
def test_a_key_cannot_lead_out_of_the_directory(store, key):
    with pytest.raises(ValueError, match="is not a key"):
        store().put(key, 1)


def test_a_newer_format_is_refused_and_not_touched(store, tmp_path):
    newer, older = store(format=3), store()
    newer.put("a", {"n": 1})
    before = (tmp_path / "store/a.json").read_bytes()
    message = r"store/a.json was written by a newer podwire \(format 3; this one supports up to 2\); upgrade podwire"
    for act in (older.load, lambda: older.get("a"), lambda: older.put("a", 1), lambda: older.remove("a")):
        with pytest.raises(NewerFormat, match=message):
            act()
    assert (tmp_path / "store/a.json").read_bytes() == before


def test_a_newer_line_of_another_process_is_seen_before_a_write(store):
    old, newer = store(append=True), store(append=True, format=3, migrate=lambda _format, data: json.loads(data))
    old.put("a", 1)
    newer.put("a", 2)
    with pytest.raises(NewerFormat):
        old.put("a", 3)


def read_old(format_: int, data: bytes):
    """Format 0: `version value`, format 1: the value alone."""
    if format_ == 0:
        version, value = data.split(b" ")
        if int(version) > 1:
            raise NewerFormat(int(version))
        return {"n": int(value)}
    assert format_ == 1
    return {"n": json.loads(data)}


@pytest.mark.parametrize("append", [False, True])
def test_older_formats_are_migrated_and_rewritten(store, tmp_path, append):
    Records(tmp_path / "store", JSON, format=1).put("one", 1)
    (tmp_path / "store/none.json").write_bytes(b"1 7")
    current = store(migrate=read_old, append=append)
    assert current.load() == {"none": {"n": 7}, "one": {"n": 1}}
    assert (tmp_path / "store/none.json").read_bytes() == b"1 7", "reading changes nothing"
    for key in ("none", "one"):
        current.put(key, {"n": 8}, Durability.PROCESS_DEATH)
        assert (tmp_path / f"store/{key}.json").read_bytes().startswith(b'{"format":2,')
    assert store().load() == {"none": {"n": 8}, "one": {"n": 8}}


def test_migration_can_refuse_a_file_without_envelope_as_newer(store, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store/a.json").write_bytes(b"5 7")
    with pytest.raises(NewerFormat, match=r"a.json was written by a newer podwire \(format 5; .* up to 2\)"):
        store(migrate=read_old).load()


@pytest.mark.parametrize("append", [False, True])
def test_every_prefix_of_a_file_is_quarantined_or_the_line_before(tmp_path, append):
    whole = Records(tmp_path / "whole", JSON, format=2, append=append)
    whole.put("a", {"n": 1})
    first = (tmp_path / "whole/a.json").read_bytes()
    whole.put("a", {"n": 2})
    data = (tmp_path / "whole/a.json").read_bytes()
    for length in range(len(data)):
        directory = tmp_path / str(length)
        directory.mkdir()
        (directory / "a.json").write_bytes(data[:length])
        problems = []
        torn = Records(directory, JSON, format=2, append=append, report=problems.append)
        value = torn.get("a")
        if append and length >= len(first):
            assert (value, problems) == ({"n": 1}, [])
        else:
            assert value is None
            assert [(problem.kind, problem.key) for problem in problems] == [("damaged", "a")]
            assert (directory / "a.json.damaged").read_bytes() == data[:length]
            assert torn.quarantined() == {"a": [f"{directory}/a.json.damaged"]}
        torn.put("a", {"n": 3})
        assert Records(directory, JSON, format=2).get("a") == {"n": 3}


@given(st.binary(max_size=200), st.integers(0, 300), st.integers(0, 255))
def test_a_damaged_byte_never_yields_another_value(tmp_path_factory, junk, place, byte):
    directory = tmp_path_factory.mktemp("store")
    Records(directory, JSON, format=2).put("a", {"n": junk.hex()})
    path = directory / "a.json"
    data = bytearray(path.read_bytes())
    data[place % len(data)] = byte
    path.write_bytes(data)
    try:
        assert Records(directory, JSON, format=2, report=lambda _: None).get("a") in (None, {"n": junk.hex()})
    except NewerFormat:
        assert data.startswith(b'{"format":')


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(), st.booleans()), max_size=20))
def test_a_store_behaves_like_a_dictionary(tmp_path_factory, steps):
    directory, model = tmp_path_factory.mktemp("store"), {}
    store = Records(directory, JSON, format=1, append=True)
    for key, value, reopened in steps:
        if reopened:
            store = Records(directory, JSON, format=1, append=True)
        if value is None:
            store.remove(key, Durability.PROCESS_DEATH)
            model.pop(key, None)
        else:
            store.put(key, value, Durability.PROCESS_DEATH)
            model[key] = value
        assert store.get(key) == model.get(key)
    assert store.load() == Records(directory, JSON, format=1).load() == model


def test_quarantined_files_are_kept_bounded_and_discarded(store, tmp_path, problems):
    ours = store()
    for number in range(records.MAX_QUARANTINED + 2):
        ours.put("a", 1)
        (tmp_path / "store/a.json").write_text(f"junk {number}")
        assert ours.get("a") is None
    kept = ours.quarantined()["a"]
    assert len(kept) == records.MAX_QUARANTINED
    assert [Path(path).read_text() for path in kept] == [f"junk {number}" for number in range(len(kept))]
    assert len(problems) == records.MAX_QUARANTINED + 2
    assert "removed, because 4 are kept already" in problems[-1].error
    ours.discard_quarantined("a")
    assert ours.quarantined() == {}


def test_a_damaged_file_of_an_earlier_name_is_listed(store, tmp_path):
    """Stores of the time before replaced the suffix."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store/a.damaged").write_text("junk")
    assert store().quarantined() == {"a": [f"{tmp_path}/store/a.damaged"]}


def test_a_value_of_another_key_is_damaged(store, tmp_path, problems):
    def check(key, value):
        if value["id"] != key:
            raise ValueError(f"is the record of {value['id']}")

    store().put("a", {"id": "b"})
    assert store(check=check).load() == {}
    assert problems[0].error == "is the record of b"


def test_an_empty_file_can_be_a_write_that_a_power_loss_took(store, tmp_path, problems):
    (tmp_path / "store").mkdir()
    (tmp_path / "store/a.json").touch()
    assert store(discard_empty=True).load() == {}
    assert (list((tmp_path / "store").iterdir()), problems) == ([], [])


def test_foreign_files_are_ignored_and_reported_once(store, tmp_path, problems):
    ours = store(ignore={"resources"})
    ours.put("a", 1)
    directory = tmp_path / "store"
    (directory / "link.json").symlink_to(directory / "a.json")
    (directory / "directory.json").mkdir()
    (directory / "other.txt").touch()
    (directory / "resources").touch()
    (directory / ".lock").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "socket.json"))
        assert ours.load() == ours.load() == {"a": 1}
        for key in ("link", "directory", "socket"):
            with pytest.raises(errors.LinuxError, match=f"{key}.json"):
                ours.put(key, 2)
    assert {problem.kind for problem in problems} == {"foreign"}
    assert sorted(Path(problem.path).name for problem in problems) == [
        "directory.json",
        "link.json",
        "other.txt",
        "socket.json",
    ]
    assert (directory / "link.json").is_symlink()


def test_foreign_files_among_directories_are_reported(store, tmp_path, problems):
    for layout in (Layout(file="record.json"), Layout(depth=2)):
        problems.clear()
        (tmp_path / "store").mkdir(exist_ok=True)
        (tmp_path / "store/file").touch()
        assert store(layout=layout).load() == {}
        assert [problem.error for problem in problems] == ["is not a directory"]


def test_reads_are_bounded(store, tmp_path, problems):
    (tmp_path / "store").mkdir()
    with (tmp_path / "store/a.json").open("wb") as file:
        file.truncate(1 << 40)
    assert store().get("a") is None
    assert "is longer than" in problems[0].error
    with pytest.raises(ValueError, match="one line of at most"):
        store().put("b", "x" * (records.MAX_RECORD + 1))


def test_an_unreadable_file_is_reported_and_others_are_loaded(store, problems, monkeypatch):
    ours = store()
    ours.put("a", 1)
    ours.put("b", 2)
    original = os.read

    def read(file, size):
        if Path(f"/proc/self/fd/{file}").readlink().name == "a.json":
            raise OSError(5, "Input/output error")
        return original(file, size)

    monkeypatch.setattr(os, "read", read)
    assert store().load() == {"b": 2}
    assert [(problem.kind, problem.key) for problem in problems] == [("unreadable", "a")]
    with pytest.raises(errors.LinuxError, match="Input/output error"):
        store().get("a")


def fsyncs(monkeypatch) -> list[Path]:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").readlink()))
    return synced


def test_power_loss_writes_fsync_file_and_directory(store, monkeypatch):
    ours = store()
    ours.put("a", 1)
    synced = fsyncs(monkeypatch)
    ours.put("a", 2)
    assert [path.name[:3] for path in synced] == [".a.", "sto"]
    ours.put("a", 3, Durability.PROCESS_DEATH)
    assert len(synced) == 2


def test_append_logs_fsync_as_requested(store, monkeypatch):
    ours = store(append=True, layout=Layout(file="record.json"))
    synced = fsyncs(monkeypatch)
    ours.put("a", 1, Durability.PROCESS_DEATH)
    ours.put("a", 2, Durability.CREATION)
    assert [path.name for path in synced if "store" in str(path)] == [], "the store's parent at most"
    ours.fsync("a")
    assert [path.name for path in synced[-3:]] == ["record.json", "a", "store"]
    synced.clear()
    ours.put("a", 3, Durability.POWER_LOSS)
    assert [path.name for path in synced] == ["record.json", "a", "store"]
    synced.clear()
    ours.put("b", 1, Durability.CREATION)
    assert len(synced) == 3, "the directory's name, the file, the file's name"


def test_a_long_log_is_rewritten(store, tmp_path):
    ours = store(append=True)
    for number in range(40):
        ours.put("a", str(number) * 3000, Durability.PROCESS_DEATH)
    assert (tmp_path / "store/a.json").stat().st_size < 2 * append_log.MAX_BYTES
    assert store().get("a") == "39" * 3000


def test_sweep_removes_the_temporary_files_of_killed_writers(store, tmp_path):
    ours = store(layout=Layout(file="record.json"))
    ours.put("a", 1)
    directory = tmp_path / "store"
    (directory / "a/.record.json.1-0.tmp").touch()
    (directory / "b/bundle").mkdir(parents=True)
    (directory / "c").mkdir()
    (directory / "c/record.json.damaged").touch()
    ours.sweep()
    assert sorted(str(path.relative_to(directory)) for path in directory.rglob("*")) == [
        "a",
        "a/record.json",
        "c",
        "c/record.json.damaged",
    ]


def test_a_failed_first_write_leaves_no_directory(store, tmp_path, monkeypatch):
    ours = store(layout=Layout(file="record.json"))
    ours.put("a", 1)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(errors.OutOfResources):
        ours.put("b", 1)
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["a"]


def test_full_disk_leaves_the_earlier_record(on_small_disk):
    def work(small):
        outcomes = {}
        for append in (False, True):
            ours = Records(small / str(append), JSON, format=1, append=append)
            ours.put("a", "old")
            with pytest.raises(errors.OutOfResources):
                ours.put("a", "x" * 100_000)
            outcomes[append] = (ours.get("a"), Records(small / str(append), JSON, format=1).get("a"))
            ours.remove("a")
        return outcomes

    assert on_small_disk(work) == dict.fromkeys((False, True), ("old", "old"))


@pytest.mark.parametrize("append", [False, True])
def test_concurrent_writers_leave_whole_values(store, append):
    stores = [store(append=append, layout=Layout(depth=2)) for _ in range(3)]

    def work(number):
        for turn in range(30):
            key = f"pod/{turn % 2}"
            stores[number].put(key, [number] * 500, Durability.PROCESS_DEATH)
            if turn % 7 == 0:
                stores[number].remove(key, Durability.PROCESS_DEATH)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(value == value[:1] * 500 for value in store().load().values())
    assert all(value == value[:1] * 500 for value in store(layout=Layout(depth=2)).load().values())


def test_append_succeeds_although_another_process_removes_the_directory(store, monkeypatch):
    records, other = (store(append=True, layout=Layout(depth=2)) for _ in range(2))
    records.put("pod/0", ["one"])
    put = append_log.put

    def race(*args, **options):
        monkeypatch.setattr(append_log, "put", put)
        other.remove("pod/0")
        return put(*args, **options)

    monkeypatch.setattr(append_log, "put", race)
    records.put("pod/0", ["two"])
    assert records.get("pod/0") == other.get("pod/0") == ["two"]


def modules(statement: str) -> set[str]:
    script = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_short_lived_programs_can_afford_the_import():
    """CNI plugins import this: what they would pay for most must not come with it."""
    root = str(Path(records.__file__).parents[2])
    imported = modules(f"sys.path.insert(0, {root!r}); import podwire.durable.records, podwire.durable.locks")
    assert imported & {"asyncio", "json", "logging", "msgspec", "pathlib", "shutil", "subprocess", "urllib"} == set()
