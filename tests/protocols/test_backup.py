"""The format of backups: what was written comes back whole, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.protocols.backup import MAGIC, BackupDecoder, BackupEncoder, BadBackup, Entry, Header

HEADER = Header(revision=42, created=1_800_000_000.5, store="sqlite")
ENTRIES = [
    Entry(b"/registry/pods/default/web", b'{"kind":"Pod"}', 41, 7),
    Entry(b"/registry/secrets/default/\xff", b"k8s:enc:aesgcm:v1:one:\x00\x01", 42, 42),
]


def encoded(header=HEADER, entries=ENTRIES) -> bytes:
    encoder = BackupEncoder()
    return encoder.header(header) + b"".join(encoder.entry(entry) for entry in entries) + encoder.end()


def decoded(data: bytes, step: int = 1 << 20) -> list[Header | Entry]:
    decoder = BackupDecoder()
    records = []
    for start in range(0, len(data), step):
        records += decoder.feed(data[start : start + step])
    assert decoder.close().entries == len(records) - 1
    return records


@pytest.mark.parametrize("step", [1, 3, 17, 1 << 20])
def test_a_backup_is_decoded_from_pieces_of_any_size(step):
    assert decoded(encoded(), step) == [HEADER, *ENTRIES]


@given(st.lists(st.builds(Entry, st.binary(), st.binary(), st.integers(0, 1 << 62), st.integers(0, 1 << 62))))
def test_any_entries_come_back_as_they_were(entries):
    assert decoded(encoded(entries=entries)) == [HEADER, *entries]


def test_a_backup_that_was_cut_anywhere_is_refused():
    data = encoded()
    for end in range(len(data)):
        with pytest.raises(BadBackup):
            decoded(data[:end])


def test_a_backup_with_any_changed_byte_is_refused():
    data = encoded()
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x40
        with pytest.raises(BadBackup):
            decoded(bytes(changed))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"\x1f\x8b\x08 and so on", "it is not a backup of podwire", id="another file"),
        pytest.param(b"podwire backup 2\n", "it has format 2; this podwire reads format 1", id="a newer format"),
        pytest.param(b"", "it has no beginning of a backup", id="an empty file"),
        pytest.param(MAGIC, "it is cut short", id="only the beginning"),
        pytest.param(MAGIC + b"\xff\xff\xff\xff", "a record of 4294967295 bytes", id="a huge record"),
        pytest.param(encoded() + b"x", "1 bytes follow after its end", id="more after the end"),
    ],
)
def test_the_error_says_what_is_wrong(data, reason):
    with pytest.raises(BadBackup, match=reason):
        decoded(data)
