"""Layers become directories, as their tars say, and never anything outside of them."""

import os
import stat
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podwire.runtime.images import BadImage, Limits
from podwire.runtime.images.directories import OPAQUE, is_whiteout
from podwire.runtime.images.errors import OverLimit
from podwire.runtime.images.limits import Budget
from podwire.runtime.images.streams import Pieces
from podwire.runtime.images.unpack import DiskUsage, unpack

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other owners")


class Bench:
    """Unpacks tars one over the other, beside a file that must stay as it is."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.layers: list[Path] = []
        (home / "rubbish").mkdir()
        (home / "outside").mkdir()
        (home / "outside" / "precious").write_text("precious")

    def add(self, data: bytes, limits: Limits | None = None) -> Path:
        root = self.home / f"layer{len(self.layers)}"
        root.mkdir()
        opened = [os.open(item, os.O_RDONLY) for item in (root, self.home / "rubbish", *reversed(self.layers))]
        self.layers.append(root)
        limits = limits or Limits()
        try:
            self.usage: DiskUsage = unpack(
                Pieces(_Bytes(data), "layer"),
                opened[0],
                opened[2:],
                opened[1],
                limits=limits,
                budget=Budget(limits),
                field="layer",
            )
        finally:
            for entry in opened:
                os.close(entry)
        return root

    def unharmed(self) -> None:
        assert [path.name for path in (self.home / "outside").iterdir()] == ["precious"]
        assert (self.home / "outside" / "precious").read_text() == "precious"
        assert list((self.home / "rubbish").iterdir()) == []
        assert {path.name for path in self.home.iterdir()} == {"rubbish", "outside", *(p.name for p in self.layers)}


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, limit: int, /) -> bytes:
        taken, self._data = self._data[:limit], self._data[limit:]
        return taken


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.unharmed()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_owner_mode_time_and_content_are_kept(bench, oci):
    root = bench.add(
        oci.tar_of(
            oci.folder("d", 0o2750, uid=7, gid=8, mtime=1000),
            oci.entry("d/setuid", b"run", mode=0o4755, uid=1, gid=2, mtime=1500),
            oci.entry("d/both", mode=0o6711, uid=4294967294, gid=3),
            oci.symlink("d/link", "/etc/shadow", uid=5, gid=6, mtime=1700),
            oci.hardlink("d/again", "d/setuid", mode=0o777, uid=99),
            oci.entry("d/fifo", type=tarfile.FIFOTYPE, mode=0o622, uid=9),
            oci.folder("./", 0o711, uid=11, mtime=1234),
        )
    )
    state = (root / "d/setuid").lstat()
    assert (state.st_uid, state.st_gid, state.st_mtime, state.st_nlink) == (1, 2, 1500, 2)
    assert (root / "d/again").read_bytes() == b"run"
    assert [mode(root / name) for name in ("d", "d/setuid", "d/both", "d/fifo")] == [0o2750, 0o4755, 0o6711, 0o622]
    assert (root / "d/both").lstat().st_uid == 4294967294
    assert ((root / "d").stat().st_gid, (root / "d").stat().st_mtime) == (8, 1000)
    link = (root / "d/link").lstat()
    assert (str((root / "d/link").readlink()), link.st_uid, link.st_mtime) == ("/etc/shadow", 5, 1700)
    assert stat.S_ISFIFO((root / "d/fifo").lstat().st_mode)
    assert (mode(root), root.stat().st_uid, root.stat().st_mtime) == (0o711, 11, 1234)
    assert bench.usage == DiskUsage(bytes=4096 * 3, inodes=6)


def test_only_harmless_extended_attributes_are_kept(bench, oci):
    capability = bytes.fromhex("0100000200040000000000000000000000000000")
    document = {
        "SCHILY.xattr.user.note": "kept",
        "SCHILY.xattr.trusted.overlay.opaque": "y",
        "SCHILY.xattr.trusted.overlay.redirect": "/",
        "SCHILY.xattr.user.overlay.opaque": "y",
        "SCHILY.xattr.security.selinux": "x",
        "SCHILY.xattr.system.posix_acl_access": "x",
        "SCHILY.xattr.security.capability": capability.decode("latin-1"),
    }
    file = oci.entry("f", pax_headers=document)
    whole = oci.tar_of(oci.folder("d", pax_headers={"SCHILY.xattr.trusted.overlay.opaque": "y"}), file)
    root = bench.add(whole)
    assert sorted(os.listxattr(root / "f")) == ["security.capability", "user.note"]
    assert os.getxattr(root / "f", "security.capability") == capability
    assert os.listxattr(root / "d") == []


def test_an_extended_attribute_that_cannot_be_set_is_reported(bench, oci):
    with pytest.raises(BadImage, match=r"f: the extended attribute 'security\.capability'"):
        bench.add(oci.tar_of(oci.entry("f", pax_headers={"SCHILY.xattr.security.capability": "no capability"})))


def test_holes_stay_holes(bench, oci):
    records = {"GNU.sparse.map": "1000000,3", "GNU.sparse.size": "5000000", "GNU.sparse.name": "sparse"}
    root = bench.add(oci.tar_of(oci.entry("x", b"abc", pax_headers=records)))
    state = (root / "sparse").stat()
    assert state.st_size == 5_000_000
    assert state.st_blocks * 512 < 100_000
    assert (root / "sparse").read_bytes()[999_999:1_000_004] == b"\0abc\0"


def test_names_and_bytes_are_any_bytes(bench, oci):
    name = b"caf\xe9 \xff\n".decode("utf-8", "surrogateescape")
    root = bench.add(oci.tar_of(oci.entry(name, b"x"), form=tarfile.GNU_FORMAT))
    assert (root / name).read_bytes() == b"x"


def test_a_later_entry_takes_the_place_of_an_earlier_one(bench, oci):
    root = bench.add(
        oci.tar_of(
            oci.entry("a", b"first"),
            oci.entry("a", b"second"),
            oci.folder("was-folder"),
            oci.entry("was-folder/deep/er", b"gone"),
            oci.entry("was-folder", b"a file"),
            oci.symlink("was-link", "a"),
            oci.entry("was-link", b"a file, and the target is untouched"),
            oci.entry("was-file"),
            oci.folder("was-file"),
            oci.entry("was-file/in", b"in"),
            oci.folder("twice", 0o700),
            oci.entry("twice/kept", b"kept"),
            oci.folder("twice", 0o711),
            oci.entry("self", b"self"),
            oci.hardlink("self", "self"),
        )
    )
    assert (root / "a").read_bytes() == b"second"
    assert (root / "was-folder").read_bytes() == b"a file"
    assert not (root / "was-link").is_symlink()
    assert (root / "was-file/in").read_bytes() == b"in"
    assert (root / "twice/kept").read_bytes() == b"kept"
    assert mode(root / "twice") == 0o711
    assert (root / "self").read_bytes() == b"self"


def test_links_on_a_path_are_followed_within_the_layer(bench, oci):
    root = bench.add(
        oci.tar_of(
            oci.folder("usr/lib"),
            oci.symlink("lib", "usr/lib"),
            oci.entry("lib/libc.so", b"elf"),
            oci.symlink("absolute", "/usr/lib"),
            oci.entry("absolute/other.so", b"elf"),
            oci.symlink("etc", "/private/etc"),
            oci.entry("etc/passwd", b"made on the way"),
            oci.symlink("up", "../../../../../outside"),
            oci.entry("up/caught", b"stays inside"),
            oci.hardlink("linked", "lib/libc.so"),
            oci.symlink("usr/sub", "../lib/../usr"),
            oci.entry("usr/sub/through", b"x"),
        )
    )
    assert {path.name for path in (root / "usr/lib").iterdir()} == {"libc.so", "other.so"}
    assert (root / "private/etc/passwd").read_bytes() == b"made on the way"
    assert (root / "outside/caught").read_bytes() == b"stays inside"
    assert (root / "linked").read_bytes() == b"elf"
    assert (root / "usr/usr/through").exists()


def test_a_path_that_leads_elsewhere_since_a_replacement_is_looked_up_again(bench, oci):
    root = bench.add(
        oci.tar_of(
            oci.folder("real"),
            oci.folder("other"),
            oci.symlink("way", "real"),
            oci.entry("way/one"),
            oci.symlink("way", "other"),
            oci.entry("way/two"),
            oci.entry("way", b"a file now"),
        )
    )
    assert [path.name for path in (root / "real").iterdir()] == ["one"]
    assert [path.name for path in (root / "other").iterdir()] == ["two"]
    assert (root / "way").read_bytes() == b"a file now"


def hostile(oci) -> dict[str, tuple]:
    outside = "../outside/precious"
    return {
        "a name that goes up": (oci.entry("../outside/new", b"x"),),
        "a name that goes down and up": (oci.entry("a/b/../../../outside/new", b"x"),),
        "a folder that goes up": (oci.folder("../outside/new"),),
        "a hard link to above": (oci.hardlink("x", outside),),
        "a hard link to an absolute path": (oci.hardlink("x", "/etc/passwd"),),
        "a hard link through a symbolic link": (oci.symlink("d", "../outside"), oci.hardlink("x", "d/precious")),
        "a hard link to a folder": (oci.folder("d"), oci.hardlink("x", "d")),
        "a hard link to nothing": (oci.hardlink("x", "nothing"),),
        "a hard link to the root": (oci.hardlink("x", "/"),),
        "a hard link to a whiteout": (oci.entry(".wh.gone"), oci.hardlink("x", "gone")),
        "a path through a file": (oci.entry("f"), oci.entry("f/x")),
        "a path through a fifo": (oci.entry("f", type=tarfile.FIFOTYPE), oci.entry("f/x")),
        "links in a circle": (oci.symlink("a", "b"), oci.symlink("b", "a"), oci.entry("a/x")),
        "a link to itself": (oci.symlink("a", "a"), oci.entry("a/x")),
        "links that multiply": (
            oci.symlink("a", "/b/b/b/b/b/b/b/b"),
            oci.symlink("b", "c"),
            oci.symlink("c", "a"),
            oci.entry("a/x"),
        ),
        "a symbolic link to nothing": (oci.symlink("a", ""),),
        "a whiteout made by hand": (oci.device("x", 0, 0),),
        "a block device 0:0": (oci.device("x", 0, 0, tarfile.BLKTYPE),),
        "a whiteout of nothing": (oci.entry(".wh."),),
        "a whiteout of here": (oci.entry("d/.wh.."),),
        "a whiteout of above": (oci.entry("d/.wh..."),),
        "a whiteout as a folder": (oci.entry(".wh.d/x"),),
        "an opaque sign as a folder": (oci.entry(".wh..wh..opq/x"),),
        "an opaque sign in a file": (oci.entry("f"), oci.entry("f/.wh..wh..opq")),
        "a root that is a file": (oci.entry("."),),
        "a root that is a link": (oci.symlink("./", "/outside"),),
    }


@pytest.mark.parametrize("case", sorted(hostile(type("Any", (), {"__getattr__": lambda *_: lambda *_, **__: None})())))
def test_a_harmful_entry_is_refused(bench, oci, case):
    with pytest.raises(BadImage):
        bench.add(oci.tar_of(*hostile(oci)[case]))


def test_absolute_names_are_names_in_the_layer(bench, oci):
    root = bench.add(oci.tar_of(oci.entry("/etc/passwd", b"x"), oci.entry("//./a//./b", b"y"), form=tarfile.GNU_FORMAT))
    assert (root / "etc/passwd").read_bytes() == b"x"
    assert (root / "a/b").read_bytes() == b"y"


def test_devices_that_every_container_has_are_made_and_others_are_left_out(bench, oci):
    root = bench.add(
        oci.tar_of(
            oci.device("dev/null", 1, 3),
            oci.device("dev/mem", 1, 1),
            oci.device("dev/sda", 8, 0, tarfile.BLKTYPE),
            oci.device("dev/ram", 1, 3, tarfile.BLKTYPE),
            oci.device("dev/kvm", 10, 232),
        )
    )
    assert {path.name for path in (root / "dev").iterdir()} == {"null"}
    assert (root / "dev/null").stat().st_rdev == os.makedev(1, 3)


def test_folders_that_a_path_implies_are_as_below(bench, oci):
    bench.add(
        oci.tar_of(
            oci.folder(".", 0o700, uid=3),
            oci.folder("tmp", 0o1777, uid=1),
            oci.folder("a/b", 0o750, uid=5),
            oci.symlink("link", "tmp"),
            oci.folder("gone", 0o700),
            oci.folder("hidden/in", 0o700),
        )
    )
    bench.add(oci.tar_of(oci.entry("a/other"), oci.entry(".wh.gone"), oci.entry("hidden/.wh..wh..opq")))
    root = bench.add(
        oci.tar_of(*(oci.entry(name) for name in ("tmp/x", "a/b/c/x", "link/x", "gone/x", "hidden/in/x", "new/x")))
    )
    assert (mode(root), root.stat().st_uid) == (0o700, 3)
    assert (mode(root / "tmp"), (root / "tmp").stat().st_uid) == (0o1777, 1)
    assert (mode(root / "a/b"), (root / "a/b").stat().st_uid) == (0o750, 5)
    assert [mode(root / name) for name in ("a/b/c", "link", "gone", "hidden/in", "new")] == [0o755] * 5


def names_in(text: str) -> set[str]:
    return set(text.split())


def test_overlayfs_shows_the_merged_layers(bench, oci, merged):
    bench.add(
        oci.tar_of(
            oci.entry("gone", b"1"),
            oci.entry("gone-folder/x"),
            oci.entry("again/old"),
            oci.entry("implied/old"),
            oci.entry("both/old"),
            oci.entry("cleared/old"),
            oci.entry("cleared/deep/old"),
            oci.entry("merged/old"),
            oci.entry("file", b"old"),
            oci.entry("kept", b"kept"),
        )
    )
    bench.add(
        oci.tar_of(
            oci.entry(".wh.gone"),
            oci.entry(".wh.gone-folder"),
            oci.entry(".wh.again"),
            oci.folder("again"),
            oci.entry("again/new"),
            oci.entry(".wh.implied"),
            oci.entry("implied/new"),
            oci.folder("both"),
            oci.entry("both/new"),
            oci.entry(".wh.both"),
            oci.entry("cleared/new"),
            oci.entry("cleared/.wh..wh..opq"),
            oci.entry("merged/new"),
            oci.entry(".wh.file"),
            oci.entry("file", b"new"),
            oci.entry(".wh.never-there"),
            oci.entry(".wh..wh.plnk/1.2", b"bookkeeping"),
        )
    )
    layers = bench.layers[::-1]
    assert names_in(merged(layers, "ls -A")) == {"again", "implied", "both", "cleared", "merged", "file", "kept"}
    assert [names_in(merged(layers, f"ls -A {name}")) for name in ("again", "implied", "both", "cleared")] == [
        {"new"}
    ] * 4
    assert names_in(merged(layers, "ls -A merged")) == {"old", "new"}
    assert merged(layers, "cat file kept") == "newkept"
    assert is_whiteout((layers[0] / "gone").lstat())
    assert os.getxattr(layers[0] / "cleared", OPAQUE) == b"y"


def test_a_whiteout_beneath_a_symbolic_link_of_its_layer_stays_in_the_layer(bench, oci, merged):
    bench.add(oci.tar_of(oci.entry("real/old")))
    bench.add(oci.tar_of(oci.symlink("way", "real"), oci.entry("way/.wh.old")))
    assert merged(bench.layers[::-1], "ls -A real") == ""


TIGHT = Limits(entries=20, data=10_000, names=2000, depth=6, path=200, name=20)


@pytest.mark.parametrize(
    "members",
    [
        pytest.param(lambda oci: [oci.entry(f"{number}") for number in range(21)], id="files"),
        pytest.param(lambda oci: [oci.entry(f"{number}/a/b/c") for number in range(6)], id="folders that are implied"),
        pytest.param(lambda oci: [oci.entry("a", bytes(6000)), oci.entry("b", bytes(6000))], id="bytes"),
        pytest.param(lambda oci: [oci.entry("a/b/c/d/e/f/g")], id="depth"),
        pytest.param(lambda oci: [oci.entry("n" * 21)], id="a name"),
        pytest.param(lambda oci: [oci.entry("/".join(["a" * 19] * 11))], id="a path"),
        pytest.param(
            lambda oci: [oci.entry(f"{number}/{'b' * 19}/{'c' * 19}/" * 2) for number in range(19)], id="names"
        ),
        pytest.param(lambda oci: [oci.symlink("a", "/b/b/b/b/b/b"), oci.entry("a/c/d")], id="depth through a link"),
        pytest.param(
            lambda oci: [oci.entry("x", pax_headers={"GNU.sparse.map": "0,0", "GNU.sparse.size": str(50 << 30)})],
            id="a hole of 50 GB",
        ),
    ],
)
def test_a_layer_above_a_limit_is_refused(bench, oci, members):
    with pytest.raises(OverLimit):
        bench.add(oci.tar_of(*members(oci)), TIGHT)


PARTS = st.sampled_from(["a", "b", "..", ".", "", "outside", "precious", ".wh.a", ".wh..wh..opq", ".wh..", "rubbish"])
PATHS = st.lists(PARTS, min_size=1, max_size=5).map("/".join)
TYPES = [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]


@st.composite
def nasty(draw):
    info = tarfile.TarInfo(draw(PATHS) or "x")
    info.type = draw(st.sampled_from(TYPES))
    info.linkname = draw(st.sampled_from(["", "/"])) + draw(PATHS)
    info.mode = draw(st.sampled_from([0, 0o644, 0o4777]))
    data = b"evil" if info.type == tarfile.REGTYPE else b""
    info.size = len(data)
    info.devmajor, info.devminor = draw(st.sampled_from([(0, 0), (1, 3), (8, 0)]))
    return info, data


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(layers=st.lists(st.lists(nasty(), min_size=1, max_size=8), min_size=1, max_size=2))
def test_a_random_layer_changes_nothing_outside_its_directory(tmp_path_factory, oci, layers):
    bench = Bench(tmp_path_factory.mktemp("bench"))
    for members in layers:
        try:
            bench.add(oci.tar_of(*members, form=tarfile.GNU_FORMAT))
        except BadImage:
            break
    bench.unharmed()
    for path in bench.home.rglob("*"):
        state = path.lstat()
        assert not stat.S_ISBLK(state.st_mode)
        assert not stat.S_ISCHR(state.st_mode) or state.st_rdev in (0, os.makedev(1, 3))
