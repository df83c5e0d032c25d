"""Records of sandboxes and containers: what is on disk, old formats, damage."""

import json

import msgspec
import pytest

from podwire.durable import append_log
from podwire.durable.files import Durability
from podwire.durable.records import NewerFormat
from podwire.linux.errors import LinuxError
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.records import FILE, ContainerRecord, SandboxRecord, open_records, record_directory

CONFIG = pb.PodSandboxConfig(hostname="web").SerializeToString()

FORMAT_1 = (
    '{"id":"a","state":"STATE","config":"EgN3ZWI=","created_at":1,"boot_id":"b","handler":"","network":"/run/netns/x",'
    '"ipc":"","addresses":["10.0.0.1"],"attached":true,"hooked":"run","format":1}'
)
"""As version 0.1.0 wrote it, one line for each change."""
CONTAINER_FORMAT_1 = (
    '{"id":"c","sandbox_id":"a","state":"running","config":"","image_id":"i","image_ref":"r","created_at":1,'
    '"started_at":2,"finished_at":0,"pid":4,"pid_started":5,"exit_code":0,"reason":"","message":"","log_path":"/l",'
    '"uid":7,"gid":8,"groups":[9],"hooked":"created","limits":[100,null,null,null,null,null,null,[]],'
    '"links":{"eth1":"net1"},"format":1}'
)


def sandbox(id_="a", **fields):
    return SandboxRecord(id=id_, **{"state": "ready", "config": CONFIG, "created_at": 1, "boot_id": "b", **fields})


def put(records, *values):
    for record in values:
        records.put(record.id, record, Durability.PROCESS_DEATH)


@pytest.fixture
def records(tmp_path):
    return open_records(tmp_path / "sandboxes", SandboxRecord)


def test_records_are_loaded_until_they_are_removed(records):
    written = [sandbox("a"), sandbox("b", addresses=("10.0.0.1",), state="stopped")]
    put(records, *written)
    assert list(records.load().values()) == written
    records.remove("a")
    records.remove("a")
    assert list(records.load().values()) == written[1:]


def test_a_missing_directory_has_no_records(records):
    records.sweep()
    assert records.load() == {}


def test_sandbox_records_of_format_1_are_read(tmp_path, records):
    directory = record_directory(records, "a")
    directory.mkdir(parents=True)
    lines = [FORMAT_1.replace("STATE", state) for state in ("making", "ready")]
    (directory / FILE).write_text("\n".join([*lines, '{"id": "a", "state": "sto']))
    record = records.get("a")
    assert (record.state, record.config, record.addresses, record.attached) == ("ready", CONFIG, ("10.0.0.1",), True)
    put(records, msgspec.structs.replace(record, state="stopped"))
    assert json.loads((directory / FILE).read_text())["format"] == 2
    assert open_records(tmp_path / "sandboxes", SandboxRecord).get("a").state == "stopped"


def test_container_records_of_format_1_are_read(tmp_path):
    records = open_records(tmp_path, ContainerRecord)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / FILE).write_text(CONTAINER_FORMAT_1)
    record = records.get("c")
    assert (record.pid, record.pid_started, record.limits.cpu_shares, record.links) == (4, 5, 100, {"eth1": "net1"})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b'{"id": "bad", "sta', id="torn"),
        pytest.param(b"[]", id="another type"),
        pytest.param(FORMAT_1.encode(), id="of another sandbox"),
        pytest.param(FORMAT_1.replace('"a"', '"bad"').replace("EgN3ZWI=", "//8=").encode(), id="invalid message"),
    ],
)
def test_a_damaged_record_is_quarantined_and_the_others_are_loaded(records, text):
    put(records, sandbox("good"))
    directory = record_directory(records, "bad")
    directory.mkdir()
    (directory / FILE).write_bytes(text)
    assert list(records.load()) == ["good"]
    records.sweep()
    assert (directory / f"{FILE}.damaged").read_bytes() == text


def test_a_record_of_a_newer_podwire_is_not_touched(records):
    directory = record_directory(records, "a")
    directory.mkdir(parents=True)
    newer = FORMAT_1.replace('"format":1', '"format":9')
    (directory / FILE).write_text(newer)
    with pytest.raises(NewerFormat, match=r"a/record\.json was written by a newer podwire \(format 9; .* up to 2"):
        records.load()
    assert (directory / FILE).read_text() == newer


@pytest.mark.parametrize("emptied", [False, True], ids=["without a record", "emptied by a power loss"])
def test_leftover_directories_are_swept(records, emptied):
    put(records, sandbox("good"))
    leftover = record_directory(records, "leftover")
    (leftover / "rootfs").mkdir(parents=True)
    if emptied:
        (leftover / FILE).touch()
    records.load()
    records.sweep()
    assert (list(records.load()), leftover.exists()) == (["good"], False)


def test_a_first_record_that_cannot_be_written_leaves_nothing(records, monkeypatch):
    def full(*_, **__):
        raise LinuxError(28, "write")

    put(records, sandbox("old"))
    monkeypatch.setattr(append_log, "put", full)
    monkeypatch.setattr("podwire.durable.files.write_file", full)
    for id_ in ("new", "old"):
        with pytest.raises(LinuxError):
            put(records, sandbox(id_))
    assert not record_directory(records, "new").exists()
    assert list(records.load()) == ["old"]


def test_a_container_record_keeps_all_fields_of_the_status(tmp_path):
    records = open_records(tmp_path, ContainerRecord)
    record = ContainerRecord(
        id="c", sandbox_id="a", state="exited", config=b"", image_id="i", image_ref="r", created_at=1, started_at=2,
        finished_at=3, pid=4, pid_started=5, exit_code=6, reason="Error", message="m", log_path="/l", uid=7, gid=8,
        groups=(9,),
    )  # fmt: skip
    put(records, record)
    assert open_records(tmp_path, ContainerRecord).load() == {"c": record}
