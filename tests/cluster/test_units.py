"""systemd units: written, verified by systemd, and removed again."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from podwire.cluster import units

PODWIRE = Path(sys.executable).with_name("podwire")


def podwire(*words):
    return subprocess.run([PODWIRE, *map(str, words)], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("--nodes", "--nodes"),
        ("/srv/a b", '"/srv/a b"'),
        ("100%", "100%%"),
        ("$HOME", "$$HOME"),
        ('say "hi"', '"say \\"hi\\""'),
        ("", '""'),
        ("a;b", '"a;b"'),
    ],
)
def test_words_reach_the_program_as_they_are(word, shown):
    assert units.quoted(word) == shown


def test_a_unit_is_written_once_and_removed(tmp_path):
    unit = tmp_path / units.CONTROL_PLANE
    assert units.write(unit, units.text("a cluster", ["/bin/true", "up"]))
    assert not units.write(unit, units.text("a cluster", ["/bin/true", "up"]))
    assert units.write(unit, units.text("a cluster", ["/bin/true", "up", "--nodes", "2"]))
    assert units.remove(tmp_path) == [unit]
    assert units.remove(tmp_path) == []


def test_a_unit_of_somebody_else_is_left_alone(tmp_path):
    unit = tmp_path / units.NODE
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    with pytest.raises(units.ForeignUnit, match="remove it first"):
        units.write(unit, units.text("a node", ["/bin/true"]))
    with pytest.raises(units.ForeignUnit, match="and stays"):
        units.remove(tmp_path)
    assert unit.read_text() == "[Service]\nExecStart=/bin/true\n"


def test_systemd_accepts_what_the_command_writes_and_bad_flags_are_refused(tmp_path):
    done = podwire("install", "control-plane", "--prefix", "/srv", "--unit-dir", tmp_path, "--up-flags=--nodes 2")
    assert done.returncode == 0, done.stderr
    assert "next: systemctl daemon-reload" in done.stdout
    unit = tmp_path / units.CONTROL_PLANE
    assert f"ExecStart={PODWIRE} up --prefix /srv --nodes 2\n" in unit.read_text()
    if (analyze := shutil.which("systemd-analyze")) is not None:
        checked = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")
    for flags, why in (("--colour", "unrecognized arguments"), ("--detach", "leave it out"), ("'", "No closing")):
        done = podwire("install", "control-plane", "--unit-dir", tmp_path, f"--up-flags={flags}")
        assert done.returncode != 0
        assert why in done.stderr
    done = podwire("install", "node", "--unit-dir", tmp_path)
    assert done.returncode == 1
    assert "has not joined" in done.stderr
    assert podwire("uninstall", "--unit-dir", tmp_path).stdout == f"{unit} is removed\n"
    assert list(tmp_path.iterdir()) == []
