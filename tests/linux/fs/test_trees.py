"""Directory trees are removed whatever their depth, and no symlink is followed."""

import os

import pytest

from podwire.linux.fs.trees import remove_tree


@pytest.fixture
def parent(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_a_tree_deeper_than_the_longest_path_is_removed(tmp_path, parent):
    here = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    name = "d" * 250
    for _ in range(40):
        os.mkdir(name, dir_fd=here)
        deeper = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    remove_tree(parent, name.encode())
    assert list(tmp_path.iterdir()) == []


def test_targets_of_symlinks_stay(tmp_path, parent):
    (tmp_path / "kept").mkdir()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "tree" / "file").touch()
    remove_tree(parent, b"tree")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_file_and_a_missing_name_are_fine(tmp_path, parent):
    (tmp_path / "file").touch()
    for _ in range(2):
        remove_tree(parent, b"file")
    assert list(tmp_path.iterdir()) == []
