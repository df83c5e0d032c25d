"""All old files or all new ones."""

import os
import stat
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwire.kubelet.volumes import atomic_writer
from podwire.kubelet.volumes.contents import File


def shown(directory: Path) -> dict[str, bytes]:
    """The content that a reader of the volume sees."""
    found = {}
    for where, directories, files in os.walk(directory, followlinks=True):
        directories[:] = [directory for directory in directories if not directory.startswith("..")]
        for file in files:
            path = Path(where, file)
            found[str(path.relative_to(directory))] = path.read_bytes()
    return found


def test_names_link_into_the_current_directory(tmp_path):
    volume = tmp_path / "v"
    assert atomic_writer.write(volume, {"a": File(b"1", 0o644), "d/e": File(b"2", 0o600)}, None)
    assert str((volume / "a").readlink()) == "..data/a"
    assert str((volume / "d").readlink()) == "..data/d"
    assert (volume / "..data").readlink().name.startswith("..2")
    assert stat.S_IMODE((volume / "d/e").stat().st_mode) == 0o600
    assert stat.S_IMODE((volume / "d").stat().st_mode) == 0o755
    assert stat.S_IMODE(volume.stat().st_mode) == 0o777


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"a": File(b"2", 0o644)}, id="other bytes"),
        pytest.param({"a": File(b"1", 0o600)}, id="another mode"),
        pytest.param({"a": File(b"1", 0o644), "b": File(b"", 0o644)}, id="one more"),
        pytest.param({"b": File(b"1", 0o644)}, id="another name"),
        pytest.param({"a/b": File(b"1", 0o644)}, id="a directory now"),
        pytest.param({}, id="nothing any more"),
    ],
)
def test_only_changed_contents_are_written(tmp_path, changed):
    volume, before = tmp_path / "v", {"a": File(b"1", 0o644)}
    atomic_writer.write(volume, before, None)
    first = (volume / "..data").readlink()
    assert not atomic_writer.write(volume, before, None)
    assert (volume / "..data").readlink() == first
    assert atomic_writer.write(volume, changed, None)
    assert shown(volume) == {path: file.data for path, file in changed.items()}
    assert [path.name for path in volume.iterdir() if path.name.startswith("..2")] == [
        str((volume / "..data").readlink())
    ]


def test_leftovers_of_a_killed_writer_are_removed_with_the_next_change(tmp_path):
    volume = tmp_path / "v"
    atomic_writer.write(volume, {"a": File(b"1", 0o644)}, None)
    (volume / "..2020_01_01_00_00_00.1").mkdir()
    (volume / "..data_tmp").symlink_to("..2020_01_01_00_00_00.1")
    atomic_writer.write(volume, {"a": File(b"2", 0o644)}, None)
    assert sorted(path.name for path in volume.iterdir()) == sorted(
        ["..data", str((volume / "..data").readlink()), "a"]
    )


def test_foreign_files_stay(tmp_path):
    volume = tmp_path / "v"
    atomic_writer.write(volume, {"a": File(b"1", 0o644)}, None)
    (volume / "sub").mkdir()
    atomic_writer.write(volume, {"b": File(b"1", 0o644)}, None)
    assert (volume / "sub").is_dir()
    assert not (volume / "a").is_symlink()


def test_a_reader_never_sees_a_mixture(tmp_path):
    volume, done = tmp_path / "v", threading.Event()

    def contents(number: int) -> dict[str, File]:
        data = str(number).encode() * 50
        return {"a": File(data, 0o644), "b": File(data, 0o644)}

    def change() -> None:
        for number in range(300):
            atomic_writer.write(volume, contents(number), None)
        done.set()

    atomic_writer.write(volume, contents(0), None)
    writer = threading.Thread(target=change)
    writer.start()
    pairs = []
    while not done.is_set():
        with suppress(FileNotFoundError):  # replaced and swept meanwhile
            pairs.append(_read_together(volume / "..data"))
    writer.join()
    pairs.append(_read_together(volume / "..data"))
    assert [pair for pair in pairs if len(set(pair)) != 1] == []


def _read_together(directory: Path) -> list[bytes]:
    with ExitStack() as opened:
        above = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        opened.callback(os.close, above)
        files = []
        for name in ("a", "b"):
            files.append(os.open(name, os.O_RDONLY, dir_fd=above))
            opened.callback(os.close, files[-1])
        return [os.read(file, 1000) for file in files]


NAMES = st.sampled_from(["a", "b", "c/d", "c/e", "f/g/h"])
FILES = st.builds(File, st.binary(max_size=20), st.sampled_from([0o644, 0o600, 0o400]))


@given(st.lists(st.dictionaries(NAMES, FILES), min_size=1, max_size=4), st.sampled_from([None, 4242]))
def test_the_last_contents_win_over_any_history(tmp_path_factory, history, group):
    volume = tmp_path_factory.mktemp("history") / "v"
    for item in history:
        atomic_writer.write(volume, item, group)
    assert shown(volume) == {path: file.data for path, file in history[-1].items()}
    assert not atomic_writer.write(volume, history[-1], group)
    if group is not None:
        assert {(volume / path).stat().st_gid for path in history[-1]} <= {group}
