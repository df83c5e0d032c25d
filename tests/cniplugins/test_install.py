"""The programs, put in place."""

import sys
from pathlib import Path

import pytest

from podwire.cli.main import main
from podwire.cniplugins.install import Foreign, install

NAMES = ["bridge", "host-local", "loopback", "portmap"]


def test_all_programs_are_put_in_place_and_can_be_replaced(tmp_path):
    paths = install(str(tmp_path / "bin"))
    assert [Path(each).name for each in paths] == sorted(each.name for each in (tmp_path / "bin").iterdir()) == NAMES
    assert {oct((tmp_path / "bin" / each).stat().st_mode & 0o7777) for each in NAMES} == {"0o755"}
    assert install(str(tmp_path / "bin")) == paths


def test_what_is_not_ours_is_kept_unless_told_otherwise(tmp_path):
    (tmp_path / "portmap").write_text("theirs")
    with pytest.raises(Foreign, match="portmap"):
        install(str(tmp_path))
    assert [each.name for each in tmp_path.iterdir()] == ["portmap"]
    install(str(tmp_path), force=True)
    assert b"podwire" in (tmp_path / "portmap").read_bytes()


def test_a_link_is_not_ours(tmp_path):
    (tmp_path / "bridge").symlink_to("/bin/true")
    with pytest.raises(Foreign):
        install(str(tmp_path))


def test_the_command_installs_and_tells_where(tmp_path, capsys):
    assert main(["cni", "install", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / each) for each in NAMES]
    (tmp_path / "bridge").write_text("theirs")
    assert main(["cni", "install", str(tmp_path)]) == 1
    assert "not ours" in capsys.readouterr().err
    assert main(["cni", "install", "--force", str(tmp_path)]) == 0


def test_a_program_names_the_interpreter_itself(programs):
    first = (programs / "bridge").read_text().splitlines()[0]
    assert first == f"#!{Path(sys.executable).resolve()} -IS"
