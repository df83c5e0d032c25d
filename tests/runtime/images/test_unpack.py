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


def test_owner_mode_time_and_content_are_kept(bench, kit):
    root = bench.add(
        kit.tar_of(
            kit.folder("d", 0o2750, uid=7, gid=8, mtime=1000),
            kit.entry("d/setuid", b"run", mode=0o4755, uid=1, gid=2, mtime=1500),
            kit.entry("d/both", mode=0o6711, uid=4294967294, gid=3),
            kit.symlink("d/link", "/etc/shadow", uid=5, gid=6, mtime=1700),
            kit.hardlink("d/again", "d/setuid", mode=0o777, uid=99),
            kit.entry("d/fifo", type=tarfile.FIFOTYPE, mode=0o622, uid=9),
            kit.folder("./", 0o711, uid=11, mtime=1234),
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


def test_only_harmless_extended_attributes_are_kept(bench, kit):
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
    file = kit.entry("f", pax_headers=document)
    whole = kit.tar_of(kit.folder("d", pax_headers={"SCHILY.xattr.trusted.overlay.opaque": "y"}), file)
    root = bench.add(whole)
    assert sorted(os.listxattr(root / "f")) == ["security.capability", "user.note"]
    assert os.getxattr(root / "f", "security.capability") == capability
    assert os.listxattr(root / "d") == []


def test_an_extended_attribute_that_cannot_be_set_is_reported(bench, kit):
    with pytest.raises(BadImage, match=r"f: the extended attribute 'security\.capability'"):
        bench.add(kit.tar_of(kit.entry("f", pax_headers={"SCHILY.xattr.security.capability": "no capability"})))


def test_holes_stay_holes(bench, kit):
    records = {"GNU.sparse.map": "1000000,3", "GNU.sparse.size": "5000000", "GNU.sparse.name": "sparse"}
    root = bench.add(kit.tar_of(kit.entry("x", b"abc", pax_headers=records)))
    state = (root / "sparse").stat()
    assert state.st_size == 5_000_000
    assert state.st_blocks * 512 < 100_000
    assert (root / "sparse").read_bytes()[999_999:1_000_004] == b"\0abc\0"


def test_names_and_bytes_are_any_bytes(bench, kit):
    name = b"caf\xe9 \xff\n".decode("utf-8", "surrogateescape")
    root = bench.add(kit.tar_of(kit.entry(name, b"x"), form=tarfile.GNU_FORMAT))
    assert (root / name).read_bytes() == b"x"


def test_a_later_entry_takes_the_place_of_an_earlier_one(bench, kit):
    root = bench.add(
        kit.tar_of(
            kit.entry("a", b"first"),
            kit.entry("a", b"second"),
            kit.folder("was-folder"),
            kit.entry("was-folder/deep/er", b"gone"),
            kit.entry("was-folder", b"a file"),
            kit.symlink("was-link", "a"),
            kit.entry("was-link", b"a file, and the target is untouched"),
            kit.entry("was-file"),
            kit.folder("was-file"),
            kit.entry("was-file/in", b"in"),
            kit.folder("twice", 0o700),
            kit.entry("twice/kept", b"kept"),
            kit.folder("twice", 0o711),
            kit.entry("self", b"self"),
            kit.hardlink("self", "self"),
        )
    )
    assert (root / "a").read_bytes() == b"second"
    assert (root / "was-folder").read_bytes() == b"a file"
    assert not (root / "was-link").is_symlink()
    assert (root / "was-file/in").read_bytes() == b"in"
    assert (root / "twice/kept").read_bytes() == b"kept"
    assert mode(root / "twice") == 0o711
    assert (root / "self").read_bytes() == b"self"


def test_links_on_a_path_are_followed_within_the_layer(bench, kit):
    root = bench.add(
        kit.tar_of(
            kit.folder("usr/lib"),
            kit.symlink("lib", "usr/lib"),
            kit.entry("lib/libc.so", b"elf"),
            kit.symlink("absolute", "/usr/lib"),
            kit.entry("absolute/other.so", b"elf"),
            kit.symlink("etc", "/private/etc"),
            kit.entry("etc/passwd", b"made on the way"),
            kit.symlink("up", "../../../../../outside"),
            kit.entry("up/caught", b"stays inside"),
            kit.hardlink("linked", "lib/libc.so"),
            kit.symlink("usr/sub", "../lib/../usr"),
            kit.entry("usr/sub/through", b"x"),
        )
    )
    assert {path.name for path in (root / "usr/lib").iterdir()} == {"libc.so", "other.so"}
    assert (root / "private/etc/passwd").read_bytes() == b"made on the way"
    assert (root / "outside/caught").read_bytes() == b"stays inside"
    assert (root / "linked").read_bytes() == b"elf"
    assert (root / "usr/usr/through").exists()


def test_a_path_that_leads_elsewhere_since_a_replacement_is_looked_up_again(bench, kit):
    root = bench.add(
        kit.tar_of(
            kit.folder("real"),
            kit.folder("other"),
            kit.symlink("way", "real"),
            kit.entry("way/one"),
            kit.symlink("way", "other"),
            kit.entry("way/two"),
            kit.entry("way", b"a file now"),
        )
    )
    assert [path.name for path in (root / "real").iterdir()] == ["one"]
    assert [path.name for path in (root / "other").iterdir()] == ["two"]
    assert (root / "way").read_bytes() == b"a file now"


def hostile(kit) -> dict[str, tuple]:
    outside = "../outside/precious"
    return {
        "a name that goes up": (kit.entry("../outside/new", b"x"),),
        "a name that goes down and up": (kit.entry("a/b/../../../outside/new", b"x"),),
        "a folder that goes up": (kit.folder("../outside/new"),),
        "a hard link to above": (kit.hardlink("x", outside),),
        "a hard link to an absolute path": (kit.hardlink("x", "/etc/passwd"),),
        "a hard link through a symbolic link": (kit.symlink("d", "../outside"), kit.hardlink("x", "d/precious")),
        "a hard link to a folder": (kit.folder("d"), kit.hardlink("x", "d")),
        "a hard link to nothing": (kit.hardlink("x", "nothing"),),
        "a hard link to the root": (kit.hardlink("x", "/"),),
        "a hard link to a whiteout": (kit.entry(".wh.gone"), kit.hardlink("x", "gone")),
        "a path through a file": (kit.entry("f"), kit.entry("f/x")),
        "a path through a fifo": (kit.entry("f", type=tarfile.FIFOTYPE), kit.entry("f/x")),
        "links in a circle": (kit.symlink("a", "b"), kit.symlink("b", "a"), kit.entry("a/x")),
        "a link to itself": (kit.symlink("a", "a"), kit.entry("a/x")),
        "links that multiply": (
            kit.symlink("a", "/b/b/b/b/b/b/b/b"),
            kit.symlink("b", "c"),
            kit.symlink("c", "a"),
            kit.entry("a/x"),
        ),
        "a symbolic link to nothing": (kit.symlink("a", ""),),
        "a whiteout made by hand": (kit.device("x", 0, 0),),
        "a block device 0:0": (kit.device("x", 0, 0, tarfile.BLKTYPE),),
        "a whiteout of nothing": (kit.entry(".wh."),),
        "a whiteout of here": (kit.entry("d/.wh.."),),
        "a whiteout of above": (kit.entry("d/.wh..."),),
        "a whiteout as a folder": (kit.entry(".wh.d/x"),),
        "an opaque sign as a folder": (kit.entry(".wh..wh..opq/x"),),
        "an opaque sign in a file": (kit.entry("f"), kit.entry("f/.wh..wh..opq")),
        "a root that is a file": (kit.entry("."),),
        "a root that is a link": (kit.symlink("./", "/outside"),),
    }


@pytest.mark.parametrize("case", sorted(hostile(type("Any", (), {"__getattr__": lambda *_: lambda *_, **__: None})())))
def test_a_harmful_entry_is_refused(bench, kit, case):
    with pytest.raises(BadImage):
        bench.add(kit.tar_of(*hostile(kit)[case]))


def test_absolute_names_are_names_in_the_layer(bench, kit):
    root = bench.add(kit.tar_of(kit.entry("/etc/passwd", b"x"), kit.entry("//./a//./b", b"y"), form=tarfile.GNU_FORMAT))
    assert (root / "etc/passwd").read_bytes() == b"x"
    assert (root / "a/b").read_bytes() == b"y"


def test_devices_that_every_container_has_are_made_and_others_are_left_out(bench, kit):
    root = bench.add(
        kit.tar_of(
            kit.device("dev/null", 1, 3),
            kit.device("dev/mem", 1, 1),
            kit.device("dev/sda", 8, 0, tarfile.BLKTYPE),
            kit.device("dev/ram", 1, 3, tarfile.BLKTYPE),
            kit.device("dev/kvm", 10, 232),
        )
    )
    assert {path.name for path in (root / "dev").iterdir()} == {"null"}
    assert (root / "dev/null").stat().st_rdev == os.makedev(1, 3)


def test_folders_that_a_path_implies_are_as_below(bench, kit):
    bench.add(
        kit.tar_of(
            kit.folder(".", 0o700, uid=3),
            kit.folder("tmp", 0o1777, uid=1),
            kit.folder("a/b", 0o750, uid=5),
            kit.symlink("link", "tmp"),
            kit.folder("gone", 0o700),
            kit.folder("hidden/in", 0o700),
        )
    )
    bench.add(kit.tar_of(kit.entry("a/other"), kit.entry(".wh.gone"), kit.entry("hidden/.wh..wh..opq")))
    root = bench.add(
        kit.tar_of(*(kit.entry(name) for name in ("tmp/x", "a/b/c/x", "link/x", "gone/x", "hidden/in/x", "new/x")))
    )
    assert (mode(root), root.stat().st_uid) == (0o700, 3)
    assert (mode(root / "tmp"), (root / "tmp").stat().st_uid) == (0o1777, 1)
    assert (mode(root / "a/b"), (root / "a/b").stat().st_uid) == (0o750, 5)
    assert [mode(root / name) for name in ("a/b/c", "link", "gone", "hidden/in", "new")] == [0o755] * 5


def names_in(text: str) -> set[str]:
    return set(text.split())


def test_overlayfs_shows_the_merged_layers(bench, kit, merged):
    bench.add(
        kit.tar_of(
            kit.entry("gone", b"1"),
            kit.entry("gone-folder/x"),
            kit.entry("again/old"),
            kit.entry("implied/old"),
            kit.entry("both/old"),
            kit.entry("cleared/old"),
            kit.entry("cleared/deep/old"),
            kit.entry("merged/old"),
            kit.entry("file", b"old"),
            kit.entry("kept", b"kept"),
        )
    )
    bench.add(
        kit.tar_of(
            kit.entry(".wh.gone"),
            kit.entry(".wh.gone-folder"),
            kit.entry(".wh.again"),
            kit.folder("again"),
            kit.entry("again/new"),
            kit.entry(".wh.implied"),
            kit.entry("implied/new"),
            kit.folder("both"),
            kit.entry("both/new"),
            kit.entry(".wh.both"),
            kit.entry("cleared/new"),
            kit.entry("cleared/.wh..wh..opq"),
            kit.entry("merged/new"),
            kit.entry(".wh.file"),
            kit.entry("file", b"new"),
            kit.entry(".wh.never-there"),
            kit.entry(".wh..wh.plnk/1.2", b"bookkeeping"),
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


def test_a_whiteout_beneath_a_symbolic_link_of_its_layer_stays_in_the_layer(bench, kit, merged):
    bench.add(kit.tar_of(kit.entry("real/old")))
    bench.add(kit.tar_of(kit.symlink("way", "real"), kit.entry("way/.wh.old")))
    assert merged(bench.layers[::-1], "ls -A real") == ""


TIGHT = Limits(entries=20, data=10_000, names=2000, depth=6, path=200, name=20)


@pytest.mark.parametrize(
    "members",
    [
        pytest.param(lambda kit: [kit.entry(f"{number}") for number in range(21)], id="files"),
        pytest.param(lambda kit: [kit.entry(f"{number}/a/b/c") for number in range(6)], id="folders that are implied"),
        pytest.param(lambda kit: [kit.entry("a", bytes(6000)), kit.entry("b", bytes(6000))], id="bytes"),
        pytest.param(lambda kit: [kit.entry("a/b/c/d/e/f/g")], id="depth"),
        pytest.param(lambda kit: [kit.entry("n" * 21)], id="a name"),
        pytest.param(lambda kit: [kit.entry("/".join(["a" * 19] * 11))], id="a path"),
        pytest.param(
            lambda kit: [kit.entry(f"{number}/{'b' * 19}/{'c' * 19}/" * 2) for number in range(19)], id="names"
        ),
        pytest.param(lambda kit: [kit.symlink("a", "/b/b/b/b/b/b"), kit.entry("a/c/d")], id="depth through a link"),
        pytest.param(
            lambda kit: [kit.entry("x", pax_headers={"GNU.sparse.map": "0,0", "GNU.sparse.size": str(50 << 30)})],
            id="a hole of 50 GB",
        ),
    ],
)
def test_a_layer_above_a_limit_is_refused(bench, kit, members):
    with pytest.raises(OverLimit):
        bench.add(kit.tar_of(*members(kit)), TIGHT)


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
def test_a_random_layer_changes_nothing_outside_its_directory(tmp_path_factory, kit, layers):
    bench = Bench(tmp_path_factory.mktemp("bench"))
    for members in layers:
        try:
            bench.add(kit.tar_of(*members, form=tarfile.GNU_FORMAT))
        except BadImage:
            break
    bench.unharmed()
    for path in bench.home.rglob("*"):
        state = path.lstat()
        assert not stat.S_ISBLK(state.st_mode)
        assert not stat.S_ISCHR(state.st_mode) or state.st_rdev in (0, os.makedev(1, 3))
