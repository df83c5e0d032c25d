import pytest

from podwire.linux.errors import NoSuchPath
from podwire.linux.fs import inotify


@pytest.fixture
def watching():
    opened = inotify.Inotify()
    yield opened
    opened.close()


def test_file_reports_modify_and_close_write(watching, tmp_path):
    file = tmp_path / "0.log"
    with file.open("w") as writer:
        watch = watching.add(file, inotify.MODIFY | inotify.CLOSE_WRITE)
        assert watching.read() == []
        writer.write("line\n")
        writer.flush()
        assert watching.read() == [inotify.Event(watch, inotify.MODIFY, "")]
    assert watching.read() == [inotify.Event(watch, inotify.CLOSE_WRITE, "")]


def test_a_directory_names_the_entry(watching, tmp_path):
    watch = watching.add(tmp_path, inotify.CREATE | inotify.DELETE)
    (tmp_path / "naïve name").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "naïve name").unlink()
    assert watching.read() == [
        inotify.Event(watch, inotify.CREATE, "naïve name"),
        inotify.Event(watch, inotify.CREATE | inotify.IS_DIRECTORY, "sub"),
        inotify.Event(watch, inotify.DELETE, "naïve name"),
    ]


def test_removed_watch_is_reported_once(watching, tmp_path):
    watch = watching.add(tmp_path, inotify.CREATE)
    watching.remove(watch)
    watching.remove(watch)
    (tmp_path / "late").touch()
    assert watching.read() == [inotify.Event(watch, inotify.GONE, "")]


def test_missing_path_is_a_named_error(watching, tmp_path):
    with pytest.raises(NoSuchPath, match="none"):
        watching.add(tmp_path / "none", inotify.MODIFY)


def test_creation_of_a_missing_directory_is_seen(watching, tmp_path):
    wanted = tmp_path / "one" / "two"
    above = watching.add_nearest(wanted, inotify.CREATE)
    assert watching.add(tmp_path, inotify.CREATE) == above
    (tmp_path / "one").mkdir()
    assert watching.read() == [inotify.Event(above, inotify.CREATE | inotify.IS_DIRECTORY, "one")]
    wanted.mkdir()
    assert watching.add_nearest(wanted, inotify.CREATE) == watching.add(wanted, inotify.CREATE)


def test_a_file_in_a_directorys_place_is_not_watched(watching, tmp_path):
    (tmp_path / "file").touch()
    assert watching.add_nearest(tmp_path / "file", inotify.CREATE) == watching.add(tmp_path, inotify.CREATE)


def test_the_same_file_is_the_same_watch(watching, tmp_path):
    file = tmp_path / "file"
    file.touch()
    (tmp_path / "link").hardlink_to(file)
    assert watching.add(file, inotify.MODIFY) == watching.add(tmp_path / "link", inotify.MODIFY)
