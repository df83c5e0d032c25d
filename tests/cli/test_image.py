"""`podwire image`, as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from podwire.runtime.images.build import BUSYBOX

PODWIRE = str(Path(sys.executable).with_name("podwire"))

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other owners"),
    pytest.mark.skipif(not BUSYBOX.exists(), reason="no busybox (Debian: busybox-static)"),
]


@pytest.fixture
def image(tmp_path):
    def run(verb: str, *arguments: object, fails: bool = False) -> str:
        command = [PODWIRE, "image", verb, *map(str, arguments), "--prefix", str(tmp_path / "prefix")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    return run


def test_an_image_is_made_listed_and_removed(image, tmp_path):
    assert image("list") == "IMAGE  ID  SIZE\n"
    assert "podwire.local/busybox:latest" in image("build-root")
    [listed] = json.loads(image("list", "-o", "json"))
    assert listed["names"] == ["podwire.local/busybox:latest"]
    assert (tmp_path / "prefix/var/lib/podwire/images/records").is_dir()
    assert listed["id"][7:20] in image("remove", "podwire.local/busybox")
    assert image("list") == "IMAGE  ID  SIZE\n"


def test_image_errors_are_one_line(image, tmp_path):
    (tmp_path / "text").write_text("no archive")
    assert image("import", tmp_path / "text", fails=True).startswith("podwire image: text: ")
    assert "No such file" in image("import", tmp_path / "nowhere", fails=True)
    assert image("remove", "other", fails=True) == "podwire image: no image 'other'\n"
    assert image("build-root", "--busybox", "/etc/passwd", fails=True).count("\n") == 1


def test_an_archive_is_written_for_any_runtime_and_nothing_is_kept(image, tmp_path):
    archive, prefix = tmp_path / "pause.tar", tmp_path / "prefix"
    words = ("--name", "localhost/pause:3.6", "--command", "sleep 'for ever'", "--archive", archive)
    assert image("build-root", *words) == ""
    assert not prefix.exists()
    [imported] = json.loads(image("import", archive, "-o", "json"))
    assert (imported["names"], imported["cmd"]) == (["localhost/pause:3.6"], ["sleep", "for ever"])
    again = tmp_path / "again.tar"
    image("build-root", *words[:-1], again)
    assert again.read_bytes() == archive.read_bytes()
    assert "NOT" in image("build-root", "--name", "NOT", "--archive", archive, fails=True)


def test_an_archive_is_read_from_standard_input(image, tmp_path):
    image("build-root", "--name", "localhost/piped:1", "--archive", tmp_path / "piped.tar")
    prefix = tmp_path / "prefix"
    with (tmp_path / "piped.tar").open("rb") as archive:
        command = [PODWIRE, "image", "import", "-", "--prefix", str(prefix)]
        done = subprocess.run(command, stdin=archive, capture_output=True, text=True, check=False)
    assert "localhost/piped:1" in done.stdout, done.stderr
    assert list((prefix / "var/lib/podwire/images/staging").iterdir()) == []


def test_an_archive_without_a_name_asks_for_one(image, tmp_path):
    image("build-root", "--name", "localhost/named:1", "--archive", tmp_path / "named.tar")
    layout = tmp_path / "layout"
    layout.mkdir()
    subprocess.run(["tar", "-xf", tmp_path / "named.tar", "-C", layout], check=True)
    index = json.loads((layout / "index.json").read_text())
    for row in index["manifests"]:
        del row["annotations"]
    (layout / "index.json").write_text(json.dumps(index))
    assert image("import", layout, fails=True).endswith("name it with --name NAME\n")
    assert image("list") == "IMAGE  ID  SIZE\n"
    assert "localhost/mine:2" in image("import", layout, "--name", "localhost/mine:2")


def test_logins_that_cannot_be_read_are_one_line(image, tmp_path):
    (tmp_path / "config.json").write_text('{"auths": {"127.0.0.1:9": {"auth": "c2VjcmV0"}}}')
    words = image("pull", "127.0.0.1:9/a:1", "--docker-config", tmp_path / "config.json", fails=True)
    assert words == "podwire image: auth: must be formatted as base64(username:password)\n"


def test_files_are_added_to_the_image(image, tmp_path):
    (tmp_path / "index.html").write_text("hello")
    image("build-root", "--add", f"{tmp_path}/index.html:/www/pages/index.html")
    [layer] = (tmp_path / "prefix/var/lib/podwire/images/snapshots").iterdir()
    assert (layer / "fs/www/pages/index.html").read_text() == "hello"
    assert "is not FILE:PATH" in image("build-root", "--add", "index.html", fails=True)
    assert "is not a path of a file" in image("build-root", "--add", f"{tmp_path}/index.html:/../etc", fails=True)
    assert "No such file" in image("build-root", "--add", "/nowhere:/etc/x", fails=True)
