"""Files that are whole after any crash, and paths that stay where they must."""

import os
import re
import subprocess
import sys
import threading

import pytest

from podwire.linux import errors
from podwire.linux.fs.files import open_beneath, open_in_root, remove_durably, replace_file, sweep, write_durably


def test_a_file_is_put_in_place_with_its_mode(tmp_path):
    path = tmp_path / "record"
    before = os.umask(0o077)
    try:
        write_durably(path, b"one", 0o644)
    finally:
        os.umask(before)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"one", 0o644)
    write_durably(str(path), b"two")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"two", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_synced_before_its_name_and_its_name_before_the_return(tmp_path):
    """Seen from outside, by strace."""
    script = f"from podwire.linux.fs.files import write_durably; write_durably({str(tmp_path / 'record')!r}, b'x')"
    log = tmp_path / "log"
    calls = "fsync,rename,renameat,renameat2,openat,write"
    subprocess.run(["strace", "-o", log, "-e", f"trace={calls}", sys.executable, "-c", script], check=True)
    lines = [line for line in log.read_text().splitlines() if re.match(r"\w+\(.*= \d", line)]
    (first,) = [number for number, line in enumerate(lines) if ".tmp" in line and "openat" in line]
    names = [re.search(r"(\w+)\(", line)[1] for line in lines[first:]]
    assert [each.removesuffix("at") for each in names[:6]] == ["open", "write", "fsync", "rename", "open", "fsync"]
    assert f'"{tmp_path}", O_RDONLY' in lines[first + 4]


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_no_other(tmp_path):
    path = tmp_path / "taken"
    path.mkdir()
    (path / "child").touch()
    with pytest.raises(errors.LinuxError, match=f"write {path}"):
        write_durably(path, b"x")
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(errors.NoSuchPath):
        write_durably(tmp_path / "nowhere" / "file", b"x")


def test_a_full_disk_leaves_the_old_file(kernel, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    kernel.mounts.mount("small", small, "tmpfs", ["size=65536"])
    write_durably(small / "record", b"old")
    with pytest.raises(errors.OutOfResources):
        write_durably(small / "record", b"x" * 100_000)
    assert (small / "record").read_bytes() == b"old"
    assert list(small.iterdir()) == [small / "record"]


def test_writers_of_one_file_leave_one_of_their_texts(tmp_path):
    path = tmp_path / "record"
    texts = [bytes([65 + number]) * 50_000 for number in range(6)]
    threads = [threading.Thread(target=write_durably, args=(path, each)) for each in texts]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert path.read_bytes() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_what_killed_writers_left_is_swept(tmp_path):
    (tmp_path / ".record.1-0.tmp").touch()
    (tmp_path / "record").touch()
    (tmp_path / ".hidden").touch()
    sweep(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [".hidden", "record"]


def test_a_file_is_removed_once_or_twice(tmp_path):
    path = tmp_path / "record"
    path.touch()
    remove_durably(path)
    remove_durably(path)
    assert not path.exists()
    with pytest.raises(errors.LinuxError):
        remove_durably(tmp_path)


@pytest.fixture
def root(tmp_path):
    """A directory like a container's, with ways out of it."""
    inside = tmp_path / "root"
    (inside / "etc").mkdir(parents=True)
    (inside / "etc" / "name").write_text("inside")
    (tmp_path / "name").write_text("outside")
    (inside / "up").symlink_to("../name")
    (inside / "absolute").symlink_to(tmp_path / "name")
    (inside / "etc-name").symlink_to("/etc/name")
    (inside / "near").symlink_to("etc/name")
    (inside / "magic").symlink_to(f"/proc/{os.getpid()}/root/etc/passwd")
    opened = os.open(inside, os.O_PATH | os.O_DIRECTORY)
    yield opened
    os.close(opened)


def read(descriptor: int) -> str:
    with os.fdopen(descriptor) as file:
        return file.read()


@pytest.mark.parametrize("path", ["etc/name", "etc/../etc/name", "near", "./etc/name"])
def test_a_path_that_stays_beneath_is_opened(root, path):
    assert read(open_beneath(root, path)) == "inside"


@pytest.mark.parametrize("path", ["../name", "etc/../../name", "up", "absolute", "/etc/name", "etc-name"])
def test_a_path_that_leads_out_is_refused(root, path):
    with pytest.raises(errors.PathEscapes):
        open_beneath(root, path)


def test_symlinks_can_be_refused_altogether(root):
    with pytest.raises(errors.PathEscapes):
        open_beneath(root, "near", symlinks=False)
    assert read(open_beneath(root, "etc/name", symlinks=False)) == "inside"


@pytest.mark.parametrize("path", ["etc/name", "/etc/name", "../../etc/name", "etc-name", "near"])
def test_in_a_root_every_path_is_inside(root, path):
    assert read(open_in_root(root, path)) == "inside"


@pytest.mark.parametrize("path", ["up", "absolute", "magic", "nowhere", "etc/name/x"])
def test_in_a_root_what_is_outside_is_not_there(root, path):
    with pytest.raises(errors.NoSuchPath):
        open_in_root(root, path)


def test_a_file_is_made_beneath_and_not_beyond(root, tmp_path):
    os.close(open_beneath(root, "etc/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640))
    assert (tmp_path / "root" / "etc" / "new").stat().st_mode & 0o777 == 0o640 & ~_umask()
    with pytest.raises(errors.Exists):
        open_beneath(root, "etc/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    with pytest.raises(errors.PathEscapes):
        open_beneath(root, "../new", os.O_WRONLY | os.O_CREAT, 0o640)
    assert not (tmp_path / "new").exists()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_is_opened_is_not_inherited(root):
    descriptor = open_in_root(root, "etc/name")
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)


def test_a_file_that_need_not_outlive_a_boot_is_put_in_place_whole(tmp_path):
    path = tmp_path / "state"
    for content in (b"one", b"two"):
        replace_file(path, content, mode=0o644)
        assert (path.read_bytes(), path.stat().st_mode & 0o777) == (content, 0o644)
    assert [each.name for each in tmp_path.iterdir()] == ["state"]
    with pytest.raises(errors.NoSuchPath):
        replace_file(tmp_path / "nowhere" / "state", b"")


def test_no_file_takes_the_place_of_a_directory(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "kept").touch()
    with pytest.raises(errors.LinuxError, match="Is a directory"):
        replace_file(tmp_path / "state", b"one")
    assert [str(each.relative_to(tmp_path)) for each in sorted(tmp_path.rglob("*"))] == ["state", "state/kept"]
