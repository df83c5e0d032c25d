"""The reader of tars, beside Python's, GNU tar's output, and garbage."""

import contextlib
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwire.runtime.images import BadImage, Limits, tar
from podwire.runtime.images.errors import OverLimit
from podwire.runtime.images.streams import Pieces

USUAL = Limits()
SMALL = Limits(header=4096, pieces=8, xattrs=2, entries=50)


def content(entry: tar.Entry, stream: Pieces) -> bytes:
    """A file's bytes, holes and all."""
    if entry.pieces is None:
        return stream.exactly(entry.stored)
    whole = bytearray(entry.size)
    for offset, length in entry.pieces:
        whole[offset : offset + length] = stream.exactly(length)
    return bytes(whole)


def read(data: bytes, limits: Limits = USUAL, portion: int = 1 << 18) -> list[tuple[tar.Entry, bytes]]:
    class Slowly(io.BytesIO):
        def read(self, limit: int = -1, /) -> bytes:
            return super().read(min(limit, portion))

    stream = Pieces(Slowly(data), "t")
    return [(entry, content(entry, stream)) for entry in tar.read(stream, limits, "t")]


NAMES = st.text(alphabet="abé/. -", min_size=1, max_size=300).map(lambda each: each.strip("/") or "x")
KINDS = [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]


@st.composite
def members(draw):
    info = tarfile.TarInfo(draw(NAMES))
    info.type = draw(st.sampled_from(KINDS))
    info.mode = draw(st.integers(0, 0o7777))
    info.uid, info.gid = draw(st.integers(0, 2**32 - 2)), draw(st.integers(0, 2**32 - 2))
    info.mtime = draw(st.integers(0, 2**34 - 1))
    data = draw(st.binary(max_size=1500)) if info.type == tarfile.REGTYPE else b""
    info.size = len(data)
    if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        info.linkname = draw(NAMES)
    if info.type == tarfile.CHRTYPE:
        info.devmajor, info.devminor = draw(st.integers(0, 4095)), draw(st.integers(0, 4095))
    return info, data


@given(st.lists(members(), max_size=5), st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]), st.integers(1, 2000))
def test_it_reads_archives_of_python_tarfile(written, form, portion):
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=form) as archive:
        for info, data in written:
            archive.addfile(info, io.BytesIO(data))
    found = read(whole.getvalue(), portion=portion)
    assert len(found) == len(written)
    for (entry, data), (info, expected) in zip(found, written, strict=True):
        assert entry.name.rstrip(b"/") == info.name.encode().rstrip(b"/")
        assert (entry.kind.value, entry.mode, entry.uid, entry.gid) == (info.type, info.mode, info.uid, info.gid)
        assert entry.mtime_ns == info.mtime * 10**9
        assert (entry.link, data) == (info.linkname.encode(), expected)
        if info.type == tarfile.CHRTYPE:
            assert entry.device == (info.devmajor, info.devminor)


def test_pax_times_have_fractions_and_are_clamped_to_the_range_of_a_disk(oci):
    times = ["1600000000.123456789", "-5.5", "99999999999999999999", "-1e300"]
    members = [oci.entry("x", pax_headers={"mtime": time}) for time in times]
    found = [entry.mtime_ns for entry, _data in read(oci.tar_of(*members))]
    assert found == [1600000000123456789, -5500000000, (2**34 - 1) * 10**9, -(2**31) * 10**9]


@pytest.fixture
def sparse_file(tmp_path: Path) -> Path:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        for number in range(30):  # more than a header holds
            file.seek(number * 200_000)
            file.write(b"%d" % number * 3000)
        file.truncate(7_000_000)
    return path


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--format=gnu", "--sparse"], id="old GNU"),
        pytest.param(["--format=pax", "--sparse", "--sparse-version=0.0"], id="0.0"),
        pytest.param(["--format=pax", "--sparse", "--sparse-version=0.1"], id="0.1"),
        pytest.param(["--format=pax", "--sparse", "--sparse-version=1.0"], id="1.0"),
        pytest.param(["--format=pax"], id="plain"),
        pytest.param(["--format=ustar"], id="ustar"),
        pytest.param(["--format=v7"], id="v7"),
    ],
)
def test_it_reads_archives_of_gnu_tar_sparse_or_not(sparse_file, options):
    after = sparse_file.with_name("after")
    after.write_bytes(b"after")
    command = ["tar", "-C", sparse_file.parent, *options, "-cf", "-", "sparse", "after"]
    found = read(subprocess.run(command, capture_output=True, check=True).stdout)
    assert [entry.name for entry, _data in found] == [b"sparse", b"after"]
    assert [data for _entry, data in found] == [sparse_file.read_bytes(), b"after"]
    if "--sparse" in options:
        assert found[0][0].stored < 1_000_000


def test_it_reads_long_names_and_extended_attributes_of_gnu_tar(tmp_path):
    deep = tmp_path / "/".join(["d" * 120] * 4)
    deep.mkdir(parents=True)
    (deep / "f").write_bytes(b"x")
    (deep / "l").symlink_to("t/" * 150 + "t")
    os.setxattr(deep / "f", "user.note", b"\x00=\n\xff")
    for form in ("gnu", "pax"):
        command = ["tar", "-C", tmp_path, f"--format={form}", "--xattrs", "-cf", "-", "d" * 120]
        whole = subprocess.run(command, capture_output=True, check=True).stdout
        found = {entry.name: entry for entry, _data in read(whole)}
        names = set(map(os.fsencode, (path.relative_to(tmp_path) for path in tmp_path.rglob("*"))))
        assert {name.rstrip(b"/") for name in found} == names
        file = found[os.fsencode((deep / "f").relative_to(tmp_path))]
        if form == "pax":
            assert file.xattrs == {"user.note": b"\x00=\n\xff"}
        assert found[os.fsencode((deep / "l").relative_to(tmp_path))].link == b"t/" * 150 + b"t"


def changed(block: bytes, at: int, value: bytes) -> bytes:
    """A header with other bytes somewhere, and the right sum for them."""
    block = block[:at] + value + block[at + len(value) :]
    summed = sum(block[:148]) + sum(block[156:512]) + 8 * 32
    return block[:148] + b"%06o\0 " % summed + block[156:]


def pax(*records: tuple[bytes, bytes] | bytes) -> bytes:
    """An extended header of these records; one that is bytes is taken as it is, however wrong."""
    payload = b"".join(record if isinstance(record, bytes) else _record(*record) for record in records)
    head = tarfile.TarInfo("pax").tobuf(tarfile.USTAR_FORMAT)
    head = changed(changed(head, 156, b"x"), 124, b"%011o\0" % len(payload))
    return head + payload + bytes(-len(payload) % 512)


def _record(key: bytes, value: bytes) -> bytes:
    for length in range(5000):
        record = b"%d %s=%s\n" % (length, key, value)
        if len(record) == length:
            return record
    raise AssertionError


PLAIN = tarfile.TarInfo("file").tobuf(tarfile.USTAR_FORMAT)
GNU_SPARSE = changed(changed(PLAIN, 156, b"S"), 386, b"%011o\0%011o\0" % (0, 512))

BAD = {
    "a checksum": PLAIN[:10] + b"x" + PLAIN[11:],
    "a header that ends early": PLAIN[:300],
    "no octal number": changed(PLAIN, 124, b"99999999999\0"),
    "a negative size": changed(PLAIN, 124, b"\xff" * 12),
    "a size without an end": changed(PLAIN, 124, b"\x80" + b"\xff" * 11),
    "data that ends early": changed(PLAIN, 124, b"00000010000\0") + b"x" * 100,
    "an unknown type": changed(PLAIN, 156, b"V"),
    "something after the end": PLAIN + bytes(1024) + PLAIN,
    "something after one empty block": PLAIN + bytes(512) + PLAIN,
    "an owner that would wrap to root": pax((b"uid", b"4294967296")) + PLAIN,
    "the owner that means no change": pax((b"gid", b"4294967295")) + PLAIN,
    "a negative owner": pax((b"uid", b"-1")) + PLAIN,
    "an owner in letters": pax((b"uid", b"root")) + PLAIN,
    "a huge owner": pax((b"uid", b"9" * 3000)) + PLAIN,
    "a pax size in letters": pax((b"size", b"1e3")) + PLAIN,
    "a pax time that is none": pax((b"mtime", b"nan")) + PLAIN,
    "a pax time in letters": pax((b"mtime", b"soon")) + PLAIN,
    "a pax name with a NUL": pax((b"path", b"a\0b")) + PLAIN,
    "a pax record without a length": pax(b"path=x\n") + PLAIN,
    "a pax record that is too long": pax(b"99 path=x\n") + PLAIN,
    "a pax record of length 0": pax(b"0 path=x\n") + PLAIN,
    "a pax record without an end": pax(b"9 path=xy") + PLAIN,
    "a pax record without a key": pax(b"6 =xy\n") + PLAIN,
    "sparse pieces that overlap": pax((b"GNU.sparse.map", b"0,5,3,5"), (b"GNU.sparse.size", b"9")) + PLAIN,
    "sparse pieces beyond the end": pax((b"GNU.sparse.map", b"0,5"), (b"GNU.sparse.size", b"4")) + PLAIN,
    "sparse pieces that are not stored": pax((b"GNU.sparse.map", b"0,5"), (b"GNU.sparse.size", b"9")) + PLAIN,
    "an odd sparse map": pax((b"GNU.sparse.map", b"0,5,7"), (b"GNU.sparse.size", b"9")) + PLAIN,
    "a sparse map without a size": pax((b"GNU.sparse.map", b"0,0")) + PLAIN,
    "a sparse map in letters": pax((b"GNU.sparse.map", b"a,b"), (b"GNU.sparse.size", b"9")) + PLAIN,
    "a sparse map in the data that is not there": pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0")) + PLAIN,
    "an old sparse map beyond the end": GNU_SPARSE + bytes(512),
}

TOO_MUCH = {
    "an extended header": changed(changed(PLAIN, 156, b"x"), 124, b"%011o\0" % 5000),
    "a long name": changed(changed(PLAIN, 156, b"L"), 124, b"\x80" + bytes(3) + b"\x01" + bytes(7)),
    "extended attributes": pax(*((b"SCHILY.xattr.user.%d" % number, b"v") for number in range(3))) + PLAIN,
    "headers without a file": b"".join([pax((b"comment", b"x"))] * 300),
    "pieces": pax((b"GNU.sparse.map", b"0,0," * 10 + b"0,0"), (b"GNU.sparse.size", b"9")) + PLAIN,
    "old pieces": changed(GNU_SPARSE, 482, b"\1") + (b"%011o\0%011o\0" % (0, 0) * 21 + b"\1" + bytes(7)) * 3,
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_an_invalid_archive_is_refused_by_the_name_of_its_entry(data):
    with pytest.raises(BadImage) as raised:
        read(data)
    assert raised.value.field.startswith("t")


@pytest.mark.parametrize("data", TOO_MUCH.values(), ids=TOO_MUCH)
def test_an_entry_above_a_limit_is_refused_before_it_is_read(data):
    with pytest.raises(OverLimit):
        read(data, SMALL)


def test_a_tar_may_end_without_saying_so():
    assert [entry.name for entry, _data in read(PLAIN)] == [b"file"]
    assert read(b"") == []
    assert read(bytes(512)) == []


def test_the_size_of_an_entry_without_data_is_ignored():
    lying = changed(changed(PLAIN, 156, b"1"), 124, b"00000001000\0")
    assert [entry.kind for entry, _data in read(lying + PLAIN)] == [tar.Kind.HARDLINK, tar.Kind.FILE]


def test_the_old_form_of_a_directory_is_a_name_with_a_slash():
    old = changed(tarfile.TarInfo("dir/").tobuf(tarfile.USTAR_FORMAT), 156, b"\0")
    assert read(old)[0][0].kind is tar.Kind.DIRECTORY


def test_names_of_ustar_have_a_prefix_and_those_of_gnu_do_not():
    split = changed(PLAIN, 345, b"before")
    assert read(split)[0][0].name == b"before/file"
    assert read(changed(split, 257, b"ustar  \0"))[0][0].name == b"file"


@settings(max_examples=200)
@given(st.data())
def test_damage_raises_bad_image_only(data):
    good = b"".join([pax((b"SCHILY.xattr.user.a", b"v"), (b"mtime", b"1.5")), PLAIN, GNU_SPARSE, bytes(1024)])
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    for start in range(0, len(damaged), 512):  # with right sums, so that the damage gets further
        if data.draw(st.booleans()) and len(damaged) - start >= 512:
            damaged[start : start + 512] = changed(bytes(damaged[start : start + 512]), 0, b"")
    with contextlib.suppress(BadImage):
        read(bytes(damaged[: data.draw(st.integers(0, len(good)))]), SMALL)
