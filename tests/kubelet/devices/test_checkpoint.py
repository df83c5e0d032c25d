"""Allocations are on disk before anyone learns of them, and damage is detected."""

import asyncio

import pytest

from podwire.durable.records import NewerFormat
from podwire.kubelet.devices.checkpoint import RESOURCES, DeviceCheckpoint, NotWritten
from podwire.kubelet.devices.pod_devices import (
    AllocatedDevices,
    PodDevices,
    annotation,
    read_annotation,
)
from podwire.kubelet.devices.recovery import REST, UnknownDevices, recovered
from podwire.protocols.cri import cri_pb2 as pb

NIC = "example.org/nic"


def record(uid, *ids, container="c"):
    return PodDevices(
        uid=uid, namespace="default", name=f"pod-{uid}", containers={container: {NIC: AllocatedDevices(ids=ids)}}
    )


@pytest.fixture
def ledger(tmp_path):
    made = DeviceCheckpoint(tmp_path / "devices")
    assert made.load() == []
    return made


def again(tmp_path):
    made = DeviceCheckpoint(tmp_path / "devices")
    return made, made.load()


async def test_held_devices_survive_a_restart(ledger, tmp_path):
    await ledger.hold(record("u", "a", "b"))
    await ledger.add_resources([NIC])
    other, damaged = again(tmp_path)
    assert damaged == []
    assert other.get("u") == record("u", "a", "b")
    assert other.holders(NIC) == {"a": "u", "b": "u"}
    assert other.resources == {NIC}


async def test_a_held_device_is_not_given_twice(ledger):
    await ledger.hold(record("u", "a", "b"))
    with pytest.raises(LookupError):
        await ledger.hold(record("v", "b", "c"))
    assert ledger.holders(NIC) == {"a": "u", "b": "u"}


async def test_devices_are_freed_once(ledger, tmp_path):
    await ledger.hold(record("u", "a"))
    freed = await asyncio.gather(ledger.release("u"), ledger.release("u"))
    assert sorted(map(len, freed)) == [0, 1]
    assert await ledger.release("u") == {}
    assert again(tmp_path)[0].uids == set()


async def test_a_pod_may_have_others_instead(ledger):
    await ledger.hold(record("u", "a", "b"))
    await ledger.hold(record("u", "b", "c"))
    assert ledger.holders(NIC) == {"b": "u", "c": "u"}


async def test_a_failed_write_leaves_the_checkpoint_unchanged(ledger, tmp_path):
    await ledger.hold(record("u", "a"))
    (tmp_path / "devices").rename(tmp_path / "elsewhere")
    (tmp_path / "devices").write_text("a file where the directory was")
    with pytest.raises(NotWritten):
        await ledger.hold(record("v", "b"))
    with pytest.raises(NotWritten):
        await ledger.hold(record("u", "c"))
    assert ledger.holders(NIC) == {"a": "u"}
    assert ledger.uids == {"u"}


async def test_a_cancelled_write_agrees_with_the_disk(ledger, tmp_path):
    task = asyncio.create_task(ledger.hold(record("u", "a")))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))
    assert again(tmp_path)[0].holders(NIC) == ledger.holders(NIC)


@pytest.mark.parametrize("how", [b"", b"nonsense", b"0" * 32 + b"\n{}"], ids=["empty", "nonsense", "another sum"])
async def test_damage_is_found_out(ledger, tmp_path, how):
    await ledger.hold(record("u", "a"))
    await ledger.hold(record("v", "b"))
    (tmp_path / "devices" / "u").write_bytes(how)
    (tmp_path / "devices" / RESOURCES).write_bytes(how)
    other, damaged = again(tmp_path)
    assert damaged == ["u"]
    assert other.holders(NIC) == {"b": "v"}


async def test_every_changed_byte_is_damage(ledger, tmp_path):
    await ledger.hold(record("u", "a"))
    path = tmp_path / "devices" / "u"
    data = path.read_bytes()
    record_at = data.index(b"record")
    for at in range(record_at, len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        other, damaged = again(tmp_path)
        assert (damaged, other.uids) == (["u"], set()), at
        other.discard_damaged("u")


FORMAT_0 = (
    b"""%s
{"uid":"u","namespace":"default","name":"pod-u","containers":{"c":{"example.org/nic":{"ids":["a","b"],"allocated":"s",\
"response":"CgA=","pre_start":false}}}}""".replace(b"\\\n", b"")
    % b"a18c659c409edd85f680503d17f1f02f"
)
NAMES_0 = b"c60e3c436d321eda407821a5ee041fa0\n" + b'["example.org/nic","example.org/old"]'
"""Files as podwire wrote them before checkpoints had envelopes."""


async def test_files_of_format_0_are_loaded_and_rewritten(tmp_path):
    directory = tmp_path / "devices"
    directory.mkdir()
    (directory / "u").write_bytes(FORMAT_0)
    (directory / RESOURCES).write_bytes(NAMES_0)
    checkpoint, damaged = again(tmp_path)
    assert damaged == []
    devices = checkpoint.get("u").containers["c"][NIC]
    assert (devices.ids, devices.allocated, devices.response) == (("a", "b"), "s", b"\n\0")
    assert checkpoint.resources == {NIC, "example.org/old"}
    await checkpoint.write("u")
    await checkpoint.add_resources(["example.org/new"])
    assert (directory / "u").read_bytes().startswith(b'{"format":1,')
    later, damaged = again(tmp_path)
    assert (damaged, later.get("u")) == ([], checkpoint.get("u"))
    assert later.resources == {NIC, "example.org/old", "example.org/new"}


@pytest.mark.parametrize("name", ["u", RESOURCES])
def test_file_of_a_newer_podwire_is_refused_and_not_touched(tmp_path, name):
    (tmp_path / "devices").mkdir()
    path, data = tmp_path / "devices" / name, b'{"format":9,"checksum":"00000000","record":{}}'
    path.write_bytes(data)
    with pytest.raises(NewerFormat, match="was written by a newer podwire"):
        again(tmp_path)
    assert path.read_bytes() == data


def test_an_annotation_is_sorted_and_read_back():
    text = annotation({"b/x": {"2", "1"}, "a/x": ["3"]})
    assert text == '{"a/x":["3"],"b/x":["1","2"]}'
    assert read_annotation(text) == {"a/x": ["3"], "b/x": ["1", "2"]}
    assert annotation({}) == ""
    assert read_annotation("[1]") is None


def sandbox(text):
    meta = pb.PodSandboxMetadata(name="p", namespace="default", uid="u")
    return pb.PodSandbox(id="s", metadata=meta, annotations={"podwire.dev/devices": text} if text else {})


def container(name, text):
    return pb.Container(metadata=pb.ContainerMetadata(name=name), annotations={"podwire.dev/devices": text})


def test_a_damaged_record_is_rebuilt_from_the_sandbox_annotation():
    found = recovered("u", [sandbox(f'{{"{NIC}":["a","b","c"]}}')], [container("c", f'{{"{NIC}":["b"]}}')])
    assert found is not None
    assert found.containers == {"c": {NIC: AllocatedDevices(ids=("b",))}, REST: {NIC: AllocatedDevices(ids=("a", "c"))}}
    assert (found.uid, found.namespace, found.name) == ("u", "default", "p")


def test_a_pod_that_the_runtime_does_not_have_uses_nothing():
    assert recovered("u", [], []) is None


def test_a_sandbox_without_the_annotation_leaves_devices_unknown():
    with pytest.raises(UnknownDevices):
        recovered("u", [sandbox("")], [])
