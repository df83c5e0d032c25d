"""Directories that only this user can change."""

import os
import pickle
from pathlib import Path

import pytest

from podwire.linux import errors
from podwire.linux.fs.trust import check_directory, check_files, make_directory, opened_parent, read_trusted

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make directories of another user")


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own"
    path.mkdir(mode=0o755)
    return path


def test_a_directory_of_ours_is_trusted_whether_it_exists_or_not(own):
    assert check_directory(own) == str(own)
    assert check_directory(own / "not/yet") == f"{own}/not/yet"
    assert check_directory("/") == "/"


def test_a_directory_of_another_user_is_refused_and_the_error_says_whose_it_is(own):
    os.chown(own, NOBODY, NOBODY)
    with pytest.raises(errors.UntrustedPath) as refused:
        check_directory(own)
    assert str(refused.value).startswith(f"{own} belongs to nobody, who could change what is done there as root: ")
    assert f"chown root {own}" in str(refused.value)
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757, 0o1777])
def test_a_directory_that_others_write_to_is_refused(own, mode):
    own.chmod(mode)
    with pytest.raises(errors.UntrustedPath, match=rf"is writable by others than its owner \(mode {mode:04o}\).*go-w"):
        check_directory(own)


def test_a_parent_that_everybody_writes_to_is_trusted_if_it_is_sticky(own):
    (own / "deep").mkdir(mode=0o755)
    own.chmod(0o777)
    for path in (own / "deep", own / "not yet"):
        with pytest.raises(errors.UntrustedPath, match="writable by everybody and not sticky"):
            check_directory(path)
    own.chmod(0o1777)
    assert check_directory(own / "deep") == f"{own}/deep"


def test_a_parent_of_another_user_is_refused(own):
    (own / "deep/deeper").mkdir(parents=True)
    os.chown(own, NOBODY, -1)
    with pytest.raises(errors.UntrustedPath, match=f"^{own} belongs to nobody"):
        check_directory(own / "deep/deeper")


def test_links_of_ours_are_followed_and_those_of_others_are_not(own, tmp_path):
    (own / "real").mkdir()
    (tmp_path / "absolute").symlink_to(own / "real")
    (tmp_path / "relative").symlink_to("own/./real/../real")
    for name in ("absolute", "relative"):
        assert check_directory(tmp_path / name / "not yet") == f"{own}/real/not yet"
    os.chown(tmp_path / "absolute", NOBODY, -1, follow_symlinks=False)
    with pytest.raises(errors.UntrustedPath, match="absolute belongs to nobody"):
        check_directory(tmp_path / "absolute")


def test_a_link_below_a_directory_of_ours_is_refused(own, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (own / "run").symlink_to(tmp_path / "elsewhere")
    assert check_directory(own / "run/x") == f"{tmp_path}/elsewhere/x"
    with pytest.raises(errors.UntrustedPath, match=rf"{own}/run is a symlink where a directory belongs"):
        check_directory(own / "run/x", no_links_below=own)
    with pytest.raises(errors.UntrustedPath), opened_parent(own / "run/x", no_links_below=own):
        pass
    with pytest.raises(errors.UntrustedPath):
        make_directory(own / "run/x", no_links_below=own)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_links_that_never_end_are_an_error(own):
    (own / "a").symlink_to("b")
    (own / "b").symlink_to("a")
    with pytest.raises(errors.PathEscapes):
        check_directory(own / "a")


def test_a_file_is_not_a_directory(own):
    (own / "file").touch()
    with pytest.raises(errors.WrongKind):
        check_directory(own / "file/below")


def test_created_directories_do_not_depend_on_the_umask(own):
    before = os.umask(0)
    try:
        assert make_directory(own / "one/two/three", 0o700) == f"{own}/one/two/three"
        assert make_directory(own / "one/two/three", 0o750) == f"{own}/one/two/three", "again is fine"
    finally:
        os.umask(before)
    modes = [(own / path).stat().st_mode & 0o7777 for path in ("one", "one/two", "one/two/three")]
    assert modes == [0o755, 0o755, 0o700]


def test_the_parent_of_a_path_is_opened(own):
    (own / "file").write_text("x")
    with opened_parent(own / "file") as parent:
        assert parent is not None
        os.unlink(parent[1], dir_fd=parent[0])
    assert not (own / "file").exists()
    with opened_parent(own / "nowhere/file") as parent:
        assert parent is None


def test_programs_of_others_are_refused(own: Path):
    check_files(own / "nowhere")
    (own / "bridge").touch(mode=0o755)
    check_files(own)
    (own / "bridge").chmod(0o757)
    with pytest.raises(errors.UntrustedPath, match="bridge is writable by everybody"):
        check_files(own)
    (own / "bridge").chmod(0o755)
    os.chown(own / "bridge", NOBODY, -1)
    with pytest.raises(errors.UntrustedPath, match="bridge belongs to nobody"):
        check_files(own)


def test_a_file_of_ours_is_read_up_to_a_bound_also_through_links(own):
    (own / "file").write_bytes(b"content")
    (own / "link").symlink_to("file")
    (own / "absolute").symlink_to(own / "link")
    assert [read_trusted(own / name, 4) for name in ("file", "link", "absolute")] == [b"cont"] * 3


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_file_that_others_write_to_is_not_read(own, mode):
    (own / "file").write_bytes(b"content")
    (own / "file").chmod(mode)
    with pytest.raises(errors.UntrustedPath, match=rf"is writable by others than its owner \(mode {mode:04o}\).*go-w"):
        read_trusted(own / "file", 100)


def test_a_file_link_or_directory_of_another_user_is_not_read(own, tmp_path):
    theirs, linked = tmp_path / "theirs", tmp_path / "linked"
    theirs.mkdir()
    (theirs / "file").write_bytes(b"content")
    (own / "through").symlink_to(theirs / "file")
    (own / "file").write_bytes(b"content")
    (own / "link").symlink_to("file")
    linked.symlink_to(own)
    for path in (own / "file", theirs, linked):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    os.chown(own / "link", NOBODY, NOBODY, follow_symlinks=False)
    for path, whose in (
        (own / "file", own / "file"),
        (own / "link", own / "link"),
        (own / "through", theirs),
        (linked / "file", linked),
    ):
        with pytest.raises(errors.UntrustedPath, match=f"^{whose} belongs to nobody"):
            read_trusted(path, 100)


def test_links_in_a_circle_and_special_files_are_not_read(own):
    (own / "one").symlink_to("other")
    (own / "other").symlink_to("one")
    os.mkfifo(own / "fifo", 0o600)
    for name in ("one", "fifo"):
        with pytest.raises(errors.WrongKind):
            read_trusted(own / name, 100)
