"""`podwire nri new`: what it writes works, and what it refuses."""

import os
import subprocess
import sys

import pytest

from podwire.cli.main import main
from podwire.nriplugins.starter.files import class_name, files


def written(tmp_path, monkeypatch, *arguments):
    monkeypatch.chdir(tmp_path)
    assert main(["nri", "new", *arguments]) == 0


def test_the_plugin_comes_with_a_test_that_it_passes_and_is_clean(tmp_path, monkeypatch, capsys):
    written(tmp_path, monkeypatch, "net.tuner-2", "--index", "42")
    folder = tmp_path / "net.tuner-2"
    assert capsys.readouterr().out.split() == [
        f"net.tuner-2/{name}" for name in ("plugin.py", "test_plugin.py", "README.md")
    ]
    # pytest-asyncio as it comes, without this repository's settings: the author of a plugin has none of them.
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, folder],
        cwd=folder, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout


def test_the_plugins_shebang_needs_no_path(tmp_path, monkeypatch):
    written(tmp_path, monkeypatch, "tuner", "--index", "42", str(tmp_path / "deep" / "down"))
    program = tmp_path / "deep" / "down" / "plugin.py"
    assert program.read_text().splitlines()[0] == f"#!{sys.executable}"
    assert os.access(program, os.X_OK)
    helped = subprocess.run([program, "--help"], env={}, capture_output=True, text=True, timeout=100, check=True)
    assert "--socket" in helped.stdout


def test_the_readme_names_the_installation_path():
    assert "/opt/nri/plugins/42-tuner" in files("tuner", "42")["README.md"]


@pytest.mark.parametrize("there", ["plugin.py", "test_plugin.py", "README.md"])
def test_nothing_is_overwritten_and_then_nothing_is_written(tmp_path, capsys, there):
    (tmp_path / there).write_text("mine")
    assert main(["nri", "new", "tuner", str(tmp_path)]) == 1
    assert f"{tmp_path / there}: there already; nothing was written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["a b"], "plugin_name: 'a b'", id="a name with a space"),
        pytest.param(["../up"], "plugin_name: '../up'", id="a name that is a path"),
        pytest.param(["tuner", "--index", "5"], "plugin_idx: '5' is not two digits", id="one digit"),
    ],
)
def test_a_name_that_no_runtime_takes_is_refused(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(["nri", "new", *arguments]) == 1
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("python", ["python3", "/opt/my python/bin/python3"])
def test_an_interpreter_that_a_shebang_cannot_hold_is_refused(python):
    with pytest.raises(ValueError, match="cannot stand in a program's first line"):
        files("tuner", "42", python=python)


@pytest.mark.parametrize(
    ("name", "reported"),
    [("tuner", "Tuner"), ("net.tuner-2", "NetTuner2"), ("2fast", "My2fast"), ("plugin", "MyPlugin"), ("_", "My")],
)
def test_a_name_becomes_the_name_of_a_class(name, reported):
    assert class_name(name) == reported
