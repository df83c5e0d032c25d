"""Cached attachments: formats on disk, damaged files, what GC spares."""

import json

import msgspec
import pytest

from podwire.durable.records import NewerFormat
from podwire.runtime.cni.cache import AttachmentCache, CachedAttachment, valid_attachments

FORMAT_1 = (
    '{"id":"c0ffee","ifname":"eth0","netns":"/run/netns/a","netns_inode":7,"args":"IgnoreUnknown=1","capabilities":{},'
    '"name":"net","version":"1.1.0","plugins":[{"type":"bridge"}],"result":null,"disable_check":false,"leaving":false,'
    '"format":1}'
)
"""As version 0.1.0 wrote it before ADD; after ADD the same with the result, in a second line."""
ADDED = FORMAT_1.replace('"result":null', '"result":{"cniVersion":"1.1.0","ips":[]}')


def attachment(**changes) -> CachedAttachment:
    made = CachedAttachment(
        id="a", ifname="eth0", netns="/n", netns_inode=1, args="", capabilities={}, name="net", version="1.1.0",
        plugins=({"type": "bridge"},),
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        pytest.param(FORMAT_1, None, id="before ADD"),
        pytest.param(f"{FORMAT_1}\n{ADDED}", {"cniVersion": "1.1.0", "ips": []}, id="after ADD"),
        pytest.param(f'{FORMAT_1}\n{{"id":"c0f', None, id="torn last line"),
    ],
)
def test_a_file_of_format_1_is_read_and_replaced_by_the_next_write(tmp_path, text, result):
    path = tmp_path / "c0ffee@eth0.json"
    path.write_text(text)
    cache = AttachmentCache(tmp_path)
    cached = cache.get("c0ffee", "eth0")
    assert (cached.name, cached.plugins, cached.result) == ("net", ({"type": "bridge"},), result)
    cache.write(msgspec.structs.replace(cached, leaving=True))
    assert json.loads(path.read_text())["format"] == 2
    assert AttachmentCache(tmp_path).get("c0ffee", "eth0").leaving


def test_a_file_of_a_newer_format_is_refused_and_not_touched(tmp_path):
    path = tmp_path / "c0ffee@eth0.json"
    newer = FORMAT_1.replace('"format":1', '"format":9')
    path.write_text(newer)
    with pytest.raises(NewerFormat, match=r"c0ffee@eth0\.json was written by a newer podwire \(format 9"):
        AttachmentCache(tmp_path).load()
    assert path.read_text() == newer


def test_a_damaged_file_counts_as_attached_until_it_is_removed(tmp_path):
    (tmp_path / "a@eth0.json").write_text("{")
    cache = AttachmentCache(tmp_path)
    assert (cache.get("a", "eth0"), cache.is_damaged("a", "eth0")) == (None, True)
    again = AttachmentCache(tmp_path)
    assert (again.load(), again.ids()) == ({("a", "eth0"): None}, {"a"})
    again.remove("a", "eth0")
    assert (again.load(), list(tmp_path.iterdir())) == ({}, [])


def test_gc_spares_damaged_files_and_attachments_that_stay():
    attachments = {
        ("a", "eth0"): attachment(),
        ("b", "eth0"): attachment(id="b", leaving=True),
        ("c", "eth0"): attachment(id="c", name="other"),
        ("d", "eth0"): None,
    }
    assert valid_attachments(attachments, "net") == [("a", "eth0"), ("d", "eth0")]
