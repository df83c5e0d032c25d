"""Directory trees are removed and measured whatever a container built in them."""

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.fs.trees import HELD_LEVELS, TreeUsage, directories_below, remove_path, remove_tree, tree_usage

DEEP = sys.getrecursionlimit() + 500


@pytest.fixture
def parent(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def nest(top, depth, name="d", *, file=b""):
    """Nested directories, the innermost with a file of these bytes."""
    here = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        deeper = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = deeper
    if file:
        descriptor = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here)
        os.write(descriptor, file)
        os.close(descriptor)
    os.close(here)


@pytest.fixture
def tree(tmp_path):
    directory = tmp_path / "tree"
    directory.mkdir()
    yield directory
    subprocess.run(["/bin/rm", "-rf", directory], check=False)


def test_a_tree_deeper_than_the_longest_path_is_removed(tree, tmp_path, parent):
    nest(tree, 40, "d" * 250)
    remove_tree(parent, b"tree")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("depth", [HELD_LEVELS - 1, HELD_LEVELS, HELD_LEVELS + 1, DEEP, 20 * HELD_LEVELS])
def test_a_tree_deeper_than_a_recursion_is_removed(tree, tmp_path, depth):
    nest(tree, depth, file=b"x")
    nest(tree, depth, "e")
    remove_path(tree)
    assert list(tmp_path.iterdir()) == []


def test_a_wide_tree_is_removed(tree):
    for number in range(3000):
        (tree / f"d{number}").mkdir()
        (tree / f"f{number}").touch()
    remove_path(tree)
    assert not tree.exists()


def test_no_descriptor_stays_open_after_a_failure(tree):
    nest(tree, 10)
    bottom = tree.joinpath(*["d"] * 10)
    mounts = KernelMounts()
    mounts.mount("tmpfs", bottom, "tmpfs")
    before = len(list(Path("/proc/self/fd").iterdir()))
    try:
        (bottom / "kept").touch()
        with pytest.raises(OSError, match="mount point"):
            remove_path(tree)
        assert (bottom / "kept").exists()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    finally:
        mounts.unmount(bottom)


def test_a_bind_mount_of_the_same_file_system_is_not_emptied(tree, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("precious")
    (tree / "bound").mkdir()
    mounts = KernelMounts()
    mounts.bind(kept, tree / "bound")
    try:
        with pytest.raises(OSError, match="mount point"):
            remove_path(tree)
        assert tree_usage(tree).used_bytes < 8192
        assert (kept / "file").read_text() == "precious"
    finally:
        mounts.unmount(tree / "bound")


def test_targets_of_symlinks_stay(tmp_path, parent):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "tree" / "file").touch()
    remove_tree(parent, b"tree")
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]
    (tmp_path / "tree").symlink_to(tmp_path / "kept")
    remove_path(tmp_path / "tree")
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]


def test_a_file_and_a_missing_name_are_fine(tmp_path, parent):
    (tmp_path / "file").touch()
    for _ in range(2):
        remove_tree(parent, b"file")
    remove_path(tmp_path / "missing" / "file")
    assert list(tmp_path.iterdir()) == []


def test_directories_swapped_for_symlinks_during_the_removal_lead_nowhere(tree, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            try:
                (tree / "a").mkdir()
                (tree / "a").rename(tree / "b")
                (tree / "a").symlink_to(kept)
                (tree / "a").rename(tree / "c")
            except OSError:
                continue

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(200):
            with suppress(OSError):  # ENOTEMPTY: somebody keeps filling it
                remove_path(tree)
            tree.mkdir(exist_ok=True)
    finally:
        stop.set()
        thread.join()
    assert (kept / "file").exists()


@pytest.mark.parametrize("depth", [HELD_LEVELS - 1, HELD_LEVELS, HELD_LEVELS + 1, HELD_LEVELS + 2, DEEP])
def test_a_deep_tree_is_measured_to_its_bottom(tree, depth):
    (tree / "last").mkdir()
    nest(tree, depth, file=b"x" * 8192)
    (tree / "zlast").mkdir()
    used = tree_usage(tree)
    assert (used.inodes, used.complete) == (depth + 3, True)
    assert used.used_bytes >= 8192


def test_blocks_count_and_not_sizes(tree):
    (tree / "written").write_bytes(b"x" * 65536)
    os.link(tree / "written", tree / "again")
    with (tree / "sparse").open("wb") as file:
        file.truncate(1 << 31)
    used = tree_usage(tree)
    assert used.inodes == 2
    assert 65536 <= used.used_bytes < 65536 + 16384


def test_a_tree_above_the_limit_is_incomplete(tree):
    for number in range(50):
        (tree / str(number)).touch()
    assert not tree_usage(tree, most_entries=20).complete
    assert tree_usage(tree, most_entries=50).complete


def test_names_of_one_file_count_for_the_limit_and_its_blocks_once(tree):
    (tree / "file").write_bytes(b"x" * 8192)
    for number in range(50):
        os.link(tree / "file", tree / str(number))
    assert not tree_usage(tree, most_entries=20).complete
    used = tree_usage(tree)
    assert (used.inodes, used.complete) == (1, True)
    assert used.used_bytes < 16384


def test_names_that_are_not_utf8_are_measured_and_removed(tree):
    (tree / os.fsdecode(b"\xff\xfe")).mkdir()
    (tree / os.fsdecode(b"\xff\xfe") / os.fsdecode(b"\x80")).write_bytes(b"x")
    assert tree_usage(tree).inodes == 2
    remove_path(tree)
    assert not tree.exists()


def test_a_missing_tree_is_empty(tmp_path):
    assert tree_usage(tmp_path / "missing") == TreeUsage(0, 0, True)
    assert TreeUsage(1, 2, True) + TreeUsage(3, 4, False) == TreeUsage(4, 6, False)


def test_directories_are_listed_without_recursion(tree):
    nest(tree, DEEP)
    (tree / ".hidden").mkdir()
    assert sum(1 for _ in directories_below(tree)) == DEEP + 2
    assert sum(1 for _ in directories_below(tree, hidden=False)) == DEEP + 1
    assert sum(1 for _ in directories_below(tree, most=10)) == 10
