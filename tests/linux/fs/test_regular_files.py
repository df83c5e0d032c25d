"""Files that a container can write are read within a bound, and only if they are regular files."""

import os
import stat
from pathlib import Path

import pytest

from podwire.linux import errors
from podwire.linux.fs.regular_files import open_regular, read_head, read_tail, write_in_place


@pytest.fixture(params=["symlink", "fifo", "directory", "device", "socket"])
def trap(request, tmp_path):
    path = tmp_path / "file"
    secret = tmp_path / "secret"
    secret.write_text("of the node")
    match request.param:
        case "symlink":
            path.symlink_to(secret)
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "device":
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        case "socket":
            os.mknod(path, stat.S_IFSOCK | 0o666)
    yield path
    assert secret.read_text() == "of the node"


def test_anything_but_a_regular_file_is_rejected(trap):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for read in (read_head, read_tail):
        with pytest.raises(errors.WrongKind, match="not a regular file"):
            read(trap, 100)
    with pytest.raises(errors.WrongKind, match="not a regular file"):
        write_in_place(trap, b"new", 0o644)
    with pytest.raises(errors.WrongKind):
        open_regular(trap, os.O_WRONLY | os.O_TRUNC)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_large_file_is_read_within_the_bound(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"head")
    os.truncate(path, 1 << 33)
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"tail")
    assert read_head(path, 4) == b"head"
    assert read_tail(path, 4) == (b"tail", False)


def test_a_short_file_is_read_completely(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"all")
    assert read_head(path, 100) == b"all"
    assert read_tail(path, 100) == (b"all", True)
    with pytest.raises(errors.NoSuchPath):
        read_head(tmp_path / "missing", 1)


def test_content_is_restored_in_place(tmp_path):
    path = tmp_path / "file"
    write_in_place(path, b"content", 0o640)
    inode = path.stat().st_ino
    os.truncate(path, 1 << 33)
    path.chmod(0o777)
    write_in_place(path, b"content", 0o640)
    assert (path.read_bytes(), path.stat().st_ino, stat.S_IMODE(path.stat().st_mode)) == (b"content", inode, 0o640)


def test_symlinks_are_followed_only_on_request(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_head(tmp_path / "link", 100, follow=True) == b"content"
    with pytest.raises(errors.WrongKind):
        read_head(tmp_path / "link", 100)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(errors.WrongKind):
        read_head(tmp_path / "fifo", 100, follow=True)
