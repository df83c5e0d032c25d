"""Networks as a directory describes them."""

import json

import pytest

from podwire.runtime.cni.conflists import Conflists


def conflist(name, *kinds, **keys):
    plugins = [{"type": kind} for kind in kinds or ("bridge",)]
    return json.dumps({"cniVersion": "1.0.0", "name": name, "plugins": plugins} | keys)


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "net.d").mkdir()
    return tmp_path / "net.d"


@pytest.fixture
def conflists(directory):
    return Conflists(directory)


def test_the_first_by_name_is_the_default(directory, conflists):
    (directory / "20-b.conflist").write_text(conflist("b"))
    (directory / "10-a.conf").write_text('{"cniVersion": "0.4.0", "name": "a", "type": "bridge"}')
    (directory / "15-c.json").write_text('{"cniVersion": "0.4.0", "name": "c", "type": "bridge"}')
    assert [network.name for network in conflists.networks()] == ["a", "c", "b"]
    assert conflists.default().name == "a"
    assert conflists.problem() == ""


def test_order_is_that_of_bytes(directory, conflists):
    for item in ("a.conflist", "B.conflist", "é.conflist", "z.conflist"):
        (directory / item).write_text(conflist(item[0].encode().hex()))
    assert [bytes.fromhex(network.name).decode() for network in conflists.networks()] == ["B", "a", "z", "é"]


def test_files_that_are_not_configurations_are_ignored(directory, conflists):
    for name in (".10-a.conflist.swp", "10-a.conflist~", "10-a.conflist.bak", "README"):
        (directory / name).write_text("junk")
    (directory / "sub.conflist").mkdir()
    (directory / "gone.conflist").symlink_to("nowhere")
    assert (conflists.networks(), conflists.problem()) == ([], "")


def test_a_broken_file_is_named_and_skipped(directory, conflists):
    (directory / "10-bad.conflist").write_text("{")
    (directory / "20-good.conflist").write_text(conflist("good"))
    assert conflists.default().name == "good"
    assert "10-bad.conflist" in conflists.problem()


def test_the_last_valid_content_of_an_invalid_file_stays_in_force(directory, conflists):
    (directory / "10-a.conflist").write_text(conflist("a"))
    (directory / "20-b.conflist").write_text(conflist("b"))
    assert conflists.default().name == "a"
    (directory / "10-a.conflist").write_text('{"name": "a", "plug')
    assert conflists.default().name == "a"
    assert "last valid content" in conflists.problem()
    (directory / "10-a.conflist").write_text(conflist("new"))
    assert (conflists.default().name, conflists.problem()) == ("new", "")


def test_every_change_of_the_directory_is_seen_by_the_next_call(directory, conflists, tmp_path):
    assert conflists.default() is None
    (directory / "10.conflist").write_text(conflist("written"))
    assert conflists.default().name == "written"
    (tmp_path / "elsewhere").write_text(conflist("moved-in"))
    (tmp_path / "elsewhere").rename(directory / "10.conflist")
    assert conflists.default().name == "moved-in"
    (directory / "new").write_text(conflist("renamed"))
    (directory / "new").rename(directory / "10.conflist")
    assert conflists.default().name == "renamed"
    for number in "12":
        (tmp_path / number).write_text(conflist(f"linked-{number}"))
        (tmp_path / "link").symlink_to(tmp_path / number)
        (tmp_path / "link").rename(directory / "10.conflist")
        assert conflists.default().name == f"linked-{number}"
    (directory / "10.conflist").unlink()
    assert conflists.default() is None
    directory.rmdir()
    assert (conflists.default(), "does not exist" in conflists.problem()) == (None, True)
    directory.mkdir()
    (directory / "10.conflist").write_text(conflist("again"))
    assert (conflists.default().name, conflists.problem()) == ("again", "")


def test_a_file_that_is_rewritten_at_once_with_the_same_size_is_read_again(directory, conflists):
    for letter in "abcdefgh":
        (directory / "10.conflist").write_text(conflist(letter))
        assert conflists.default().name == letter


def test_a_folder_with_the_networks_name_has_more_plugins(directory, conflists):
    (directory / "10.conflist").write_text(conflist("net"))
    folder = directory / "net"
    folder.mkdir()
    (folder / "20-y.conf").write_text('{"type": "y"}')
    (folder / "10-x.conf").write_text('{"type": "x"}')
    assert [plugin["type"] for plugin in conflists.default().plugins] == ["bridge", "x", "y"]
    (folder / "10-x.conf").unlink()
    assert [plugin["type"] for plugin in conflists.default().plugins] == ["bridge", "y"]
    (directory / "10.conflist").write_text(conflist("net", loadOnlyInlinedPlugins=True))
    assert [plugin["type"] for plugin in conflists.default().plugins] == ["bridge"]


def test_of_two_networks_with_one_name_the_first_counts(directory, conflists):
    (directory / "10.conflist").write_text(conflist("net", "first"))
    (directory / "20.conflist").write_text(conflist("net", "second"))
    [network] = conflists.networks()
    assert network.plugins[0]["type"] == "first"


def test_a_file_that_is_too_large_is_broken(directory, conflists):
    (directory / "10.conflist").write_text(" " * (1 << 20) + conflist("net"))
    assert conflists.default() is None
    assert "larger" in conflists.problem()
