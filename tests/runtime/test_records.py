import logging

import msgspec
import pytest

from podwire.durable import append_log
from podwire.linux.errors import LinuxError
from podwire.protocols.cri import cri_pb2 as pb
from podwire.runtime.records import FILE, ContainerRecord, NewerRecord, Records, SandboxRecord

CONFIG = pb.PodSandboxConfig(hostname="web").SerializeToString()


def sandbox(id_="a", **fields):
    return SandboxRecord(id=id_, **{"state": "ready", "config": CONFIG, "created_at": 1, "boot_id": "b", **fields})


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "sandboxes", SandboxRecord)


def test_what_is_written_is_loaded(records):
    written = [sandbox("a"), sandbox("b", addresses=("10.0.0.1",), state="stopped")]
    for each in written:
        records.write(each)
    assert list(records.load()) == written
    records.remove("a")
    records.remove("a")
    assert list(records.load()) == written[1:]


def test_nothing_was_written_yet(records):
    assert list(records.load()) == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b'{"id": "bad", "sta', id="torn"),
        pytest.param(b"[]", id="something else"),
        pytest.param(msgspec.json.encode(sandbox("other")), id="another's"),
        pytest.param(msgspec.json.encode(sandbox("bad", config=b"\xff\xff")), id="with a broken message"),
    ],
)
def test_a_record_that_cannot_be_read_harms_only_itself(records, text, caplog):
    records.write(sandbox("good"))
    home = records.home("bad")
    home.mkdir()
    (home / FILE).write_bytes(text)
    with caplog.at_level(logging.ERROR):
        assert [each.id for each in records.load()] == ["good"]
    assert str(home) in str([vars(each) for each in caplog.records])
    assert (home / FILE).read_bytes() == text, "it is left for whoever wants to look"


def test_the_state_of_a_later_podwire_is_not_touched(records):
    records.write(sandbox("good"))
    records.write(sandbox("later", format=2))
    with pytest.raises(NewerRecord, match=r"later/record\.json has format 2, written by a later podwire"):
        list(records.load())


@pytest.mark.parametrize("emptied", [False, True], ids=["without a record", "with one that never was on the disk"])
def test_litter_is_removed(records, emptied):
    records.write(sandbox("good"))
    (records.home("litter") / "rootfs").mkdir(parents=True)
    if emptied:
        (records.home("litter") / FILE).touch()
    assert [each.id for each in records.load()] == ["good"]
    assert not records.home("litter").exists()


def test_the_newest_of_a_record_counts_and_what_was_torn_does_not(records):
    for state in ("making", "ready"):
        records.write(sandbox("a", state=state))
        records.settle("a")
    with (records.home("a") / FILE).open("ab") as file:
        file.write(b'\n{"id": "a", "state": "sto')
    assert [each.state for each in records.load()] == ["ready"]
    records.write(sandbox("a", state="stopped"))
    assert [each.state for each in records.load()] == ["stopped"]


def test_a_first_record_that_cannot_be_written_leaves_nothing(records, monkeypatch):
    def full(*_, **__):
        raise LinuxError(28, "write")

    records.write(sandbox("old"))
    monkeypatch.setattr(append_log, "put", full)
    for id_ in ("new", "old"):
        with pytest.raises(LinuxError):
            records.write(sandbox(id_))
    assert not records.home("new").exists()
    assert [each.id for each in records.load()] == ["old"]


def test_a_container_keeps_all_that_its_status_tells(tmp_path):
    records = Records(tmp_path, ContainerRecord)
    record = ContainerRecord(
        id="c", sandbox_id="a", state="exited", config=b"", image_id="i", image_ref="r", created_at=1, started_at=2,
        finished_at=3, pid=4, pid_started=5, exit_code=6, reason="Error", message="m", log_path="/l", uid=7, gid=8,
        groups=(9,),
    )  # fmt: skip
    records.write(record)
    assert list(records.load()) == [record]
