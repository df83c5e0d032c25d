"""Paths that must not lead out of a directory."""

import os

import pytest

from podwire.linux import errors
from podwire.linux.fs.paths import open_beneath, open_in_root


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
def test_paths_outside_a_root_do_not_exist_in_it(root, path):
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


def test_opened_descriptor_is_not_inherited(root):
    descriptor = open_in_root(root, "etc/name")
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
