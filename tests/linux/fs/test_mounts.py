"""Mounts, and what files show of them."""

import pytest

from podwire.linux import errors, syscalls
from podwire.linux.fs.mounts import parse_mountinfo


@pytest.fixture
def places(tmp_path):
    """Two directories, `a` with a file in it."""
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    (a / "file").write_text("hello")
    return a, b


def the(kernel, target):
    return [mount for mount in kernel.mounts.list() if mount.target == str(target)][-1]


def test_a_file_system_is_mounted_and_unmounted(kernel, places):
    a, _ = places
    assert not kernel.mounts.is_mounted(a)
    kernel.mounts.mount("scratch", a, "tmpfs", ["nosuid", "nodev", "mode=0700", "size=65536"])
    found = the(kernel, a)
    assert (found.kind, found.source) == ("tmpfs", "scratch")
    assert set(found.options) >= {"rw", "nosuid", "nodev"}
    assert kernel.mounts.is_mounted(a)
    kernel.mounts.unmount(a)
    assert not kernel.mounts.is_mounted(a)


def test_bind_mount_shows_the_source(kernel, places):
    a, b = places
    kernel.mounts.bind(a, b)
    assert kernel.mounts.is_mounted(b)
    assert "rw" in the(kernel, b).options
    assert (b / "file").read_text() == "hello"
    (b / "new").touch()
    assert (a / "new").exists()


def test_bind_mount_can_be_read_only(kernel, places):
    a, b = places
    kernel.mounts.bind(a, b, read_only=True)
    assert "ro" in the(kernel, b).options
    with pytest.raises(OSError, match="Read-only"):
        (b / "new").touch()
    (a / "new").touch()


def test_recursive_bind_includes_submounts(kernel, places):
    a, b = places
    (a / "sub").mkdir()
    kernel.mounts.mount("scratch", a / "sub", "tmpfs")
    kernel.mounts.bind(a, b)
    assert not kernel.mounts.is_mounted(b / "sub")
    kernel.mounts.unmount(b)
    kernel.mounts.bind(a, b, recursive=True, read_only=True)
    assert [("ro" in the(kernel, item).options) for item in (b, b / "sub")] == [True, True]
    assert "rw" in the(kernel, a / "sub").options
    with pytest.raises(OSError, match="Read-only"):
        (b / "sub" / "new").touch()


def test_mount_becomes_read_only_alone_or_recursively(kernel, places):
    a, _ = places
    kernel.mounts.mount("scratch", a, "tmpfs")
    (a / "sub").mkdir(exist_ok=True)
    kernel.mounts.mount("scratch", a / "sub", "tmpfs", ["nosuid"])
    kernel.mounts.make_read_only(a)
    assert [("ro" in the(kernel, item).options) for item in (a, a / "sub")] == [True, False]
    kernel.mounts.make_read_only(a, recursive=True)
    assert [("ro" in the(kernel, item).options) for item in (a, a / "sub")] == [True, True]
    assert "nosuid" in the(kernel, a / "sub").options


def test_read_only_works_without_mount_setattr(kernel, places, monkeypatch):
    def refuse(number, operation, *_, names=None):
        raise errors.Unsupported(38, operation)

    a, _ = places
    kernel.mounts.mount("scratch", a, "tmpfs", ["nosuid"])
    (a / "sub").mkdir()
    kernel.mounts.mount("scratch", a / "sub", "tmpfs")
    monkeypatch.setattr(syscalls, "syscall", refuse)
    kernel.mounts.make_read_only(a, recursive=True)
    assert set(the(kernel, a).options) >= {"ro", "nosuid"}
    assert "ro" in the(kernel, a / "sub").options


def test_a_mount_with_others_on_it_is_busy_unless_lazily(kernel, places):
    a, _ = places
    kernel.mounts.mount("scratch", a, "tmpfs")
    (a / "sub").mkdir(exist_ok=True)
    kernel.mounts.mount("scratch", a / "sub", "tmpfs")
    with pytest.raises(errors.Busy, match=f"unmount {a}"):
        kernel.mounts.unmount(a)
    kernel.mounts.unmount(a, lazily=True)
    assert not kernel.mounts.is_mounted(a)
    assert not kernel.mounts.is_mounted(a / "sub")


def test_a_mount_in_use_is_busy_unless_lazily(kernel, places):
    a, _ = places
    kernel.mounts.mount("scratch", a, "tmpfs")
    with (a / "open").open("w") as file:
        with pytest.raises(errors.Busy):
            kernel.mounts.unmount(a)
        kernel.mounts.unmount(a, lazily=True)
        file.write("still there")


def test_stacked_mounts_are_unmounted_one_by_one(kernel, places):
    a, _ = places
    for name in ("first", "second"):
        kernel.mounts.mount(name, a, "tmpfs")
    assert the(kernel, a).source == "second"
    kernel.mounts.unmount(a)
    assert the(kernel, a).source == "first"


def test_unmount_of_nothing_is_no_such_mount(kernel, places):
    a, _ = places
    for call in (
        lambda: kernel.mounts.unmount(a),
        lambda: kernel.mounts.unmount(a / "nowhere", lazily=True),
        lambda: kernel.mounts.make_read_only(a),
        lambda: kernel.mounts.set_propagation(a, "private"),
    ):
        with pytest.raises(errors.NoSuchMount):
            call()


def test_propagation_is_set(kernel, places):
    a, _ = places
    kernel.mounts.mount("scratch", a, "tmpfs")
    assert the(kernel, a).propagation == ()
    kernel.mounts.set_propagation(a, "shared")
    assert the(kernel, a).propagation[0].startswith("shared:")
    kernel.mounts.set_propagation(a, "rprivate")
    assert the(kernel, a).propagation == ()


def test_failed_mount_is_a_named_error(kernel, places):
    a, _ = places
    with pytest.raises(errors.Unsupported, match="no nosuchfs in this kernel"):
        kernel.mounts.mount("x", a, "nosuchfs")
    with pytest.raises(errors.NoSuchPath):
        kernel.mounts.mount("x", a / "nowhere", "tmpfs")
    with pytest.raises(errors.NoSuchPath):
        kernel.mounts.bind(a / "nowhere", a)
    with pytest.raises(errors.Refused):
        kernel.mounts.mount("x", a, "tmpfs", ["size=nonsense"])


def test_a_target_with_strange_letters_is_found(kernel, tmp_path):
    strange = tmp_path / "a b\tc\\d\né"
    strange.mkdir()
    kernel.mounts.mount("scratch", strange, "tmpfs")
    assert kernel.mounts.is_mounted(strange)


def test_a_line_of_mountinfo_is_read_whole():
    line = "36 35 98:0 /root\\040x /mnt\\1342 rw,noatime shared:1 master:2 - ext3 /dev/root rw,errors=continue\n"
    (found,) = parse_mountinfo(line)
    assert (found.id, found.parent, found.device, found.root, found.target) == (36, 35, "98:0", "/root x", "/mnt\\2")
    assert (found.options, found.propagation) == (("rw", "noatime"), ("shared:1", "master:2"))
    assert (found.kind, found.source, found.super_options) == ("ext3", "/dev/root", ("rw", "errors=continue"))
