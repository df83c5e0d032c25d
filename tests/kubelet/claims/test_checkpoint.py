"""The checkpoint of claims: what the files of earlier and later versions and damaged ones lead to."""

import hashlib

import pytest

from podwire.durable.records import NewerFormat
from podwire.kubelet.claims.checkpoint import ClaimCheckpoint, salvage
from podwire.kubelet.claims.claim_info import ClaimInfo, ClaimUser, PreparedDevice

CLAIM = ClaimInfo(
    uid="1",
    namespace="ns",
    name="mine",
    allocation="x",
    drivers={"d": (PreparedDevice(pool="n", name="eth2", requests=("r",), cdi=("d/nic=1",), share_id="s"),), "e": None},
    boots={"d": "b"},
    users=(ClaimUser(uid="u", name="p"),),
)

FORMAT_0 = (
    b"""%s
{"uid":"1","namespace":"ns","name":"mine","allocation":"x","drivers":{"d":[{"pool":"n","name":"eth2","requests":["r"],\
"cdi":["d/nic=1"],"share_id":"s"}],"e":null},"boots":{"d":"b"},"users":[{"uid":"u","name":"p"}],"leaving":false,\
"version":1}""".replace(b"\\\n", b"")
    % b"32159365130640ca920e6c4b65615882"
)
"""A file as podwire wrote it before checkpoints had envelopes."""


def load(directory):
    checkpoint = ClaimCheckpoint(directory)
    checkpoint.load()
    return checkpoint


def sealed(body):
    return hashlib.blake2b(body, digest_size=16).hexdigest().encode() + b"\n" + body


async def test_a_record_round_trips(tmp_path):
    await load(tmp_path).put(CLAIM)
    assert load(tmp_path).claims == {"1": CLAIM}


async def test_file_of_format_0_is_loaded_and_rewritten(tmp_path):
    (tmp_path / "1").write_bytes(FORMAT_0)
    checkpoint = load(tmp_path)
    assert checkpoint.claims == {"1": CLAIM}
    changed = CLAIM.with_user(ClaimUser(uid="v", name="q"))
    await checkpoint.put(changed)
    assert (tmp_path / "1").read_bytes().startswith(b'{"format":2,')
    assert load(tmp_path).claims == {"1": changed}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(sealed(FORMAT_0.partition(b"\n")[2].replace(b'"version":1', b'"version":2')), id="format 0"),
        pytest.param(b'{"format":3,"checksum":"00000000","record":{}}', id="envelope"),
    ],
)
def test_file_of_a_newer_podwire_is_refused_and_not_touched(tmp_path, data):
    (tmp_path / "1").write_bytes(data)
    with pytest.raises(NewerFormat, match=r"/1 was written by a newer podwire"):
        load(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert (tmp_path / "1").read_bytes() == data


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda _: b"", id="empty"),
        pytest.param(lambda data: data[:-1], id="torn"),
        pytest.param(lambda data: data.replace(b"eth2", b"eth3"), id="changed"),
        pytest.param(lambda _: sealed(b'{"version":1}'), id="not a record"),
    ],
)
@pytest.mark.parametrize("old", [False, True], ids=["format 2", "format 0"])
async def test_damaged_file_is_quarantined(tmp_path, damage, old):
    (tmp_path / "1").write_bytes(FORMAT_0)
    if not old:
        await load(tmp_path).put(CLAIM.with_user(ClaimUser(uid="v", name="q")))
    (tmp_path / "1").write_bytes(damage((tmp_path / "1").read_bytes()))
    checkpoint = load(tmp_path)
    assert (checkpoint.claims, list(checkpoint.damaged)) == ({}, ["1"])
    await checkpoint.discard_damaged("1")
    assert (checkpoint.damaged, list(tmp_path.iterdir())) == ({}, [])


async def test_record_of_another_claim_is_quarantined(tmp_path):
    await load(tmp_path).put(CLAIM)
    (tmp_path / "1").rename(tmp_path / "2")
    assert list(load(tmp_path).damaged) == ["2"]


async def test_salvage_keeps_names_and_drivers_of_a_file_with_a_wrong_checksum(tmp_path):
    await load(tmp_path).put(CLAIM)
    for data in (FORMAT_0, (tmp_path / "1").read_bytes()):
        claim = salvage("1", data.replace(b"eth2", b"eth3"))
        assert (claim.namespace, claim.name, claim.drivers) == ("ns", "mine", {"d": None, "e": None})
        assert (claim.users, claim.leaving) == ((), True)
        torn = salvage("1", data[:-20])
        assert (torn.namespace, torn.name, torn.drivers) == ("ns", "mine", {})
