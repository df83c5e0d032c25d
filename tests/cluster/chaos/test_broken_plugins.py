"""Broken CNI plugins fail as their names say, never deny a DEL, and are replaced by the real ones again."""

import subprocess

import pytest

from podwire.cluster.chaos.broken_plugins import CNI_FAILURES, REAL, broken_cni, restore_cni
from podwire.cniplugins.install import NOTE

WORKS = '#!/bin/sh\necho "{\\"real\\": \\"$CNI_COMMAND\\"}"\n'


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "bridge").write_text(WORKS)
    (tmp_path / "bridge").chmod(0o755)
    (tmp_path / NOTE).write_text("socket /run/x\n")
    return tmp_path


def call(directory, verb):
    environment = {"CNI_COMMAND": verb, "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [directory / "bridge"], env=environment, input=b"{}", capture_output=True, check=False, timeout=20
    )


@pytest.mark.parametrize("failure", CNI_FAILURES)
def test_a_broken_plugin_fails_and_works_again(directory, failure):
    with broken_cni(directory, "bridge", failure):
        added, deleted = call(directory, "ADD"), call(directory, "DEL")
    assert added.returncode or b"real" not in added.stdout
    assert deleted.returncode or deleted.stdout == b'{"real": "DEL"}\n', "DEL is carried out, or says that it failed"
    assert call(directory, "ADD").stdout == b'{"real": "ADD"}\n'
    assert sorted(path.name for path in directory.iterdir()) == [NOTE, "bridge"]


def test_a_plugin_that_loses_its_answer_does_its_work(directory):
    with broken_cni(directory, "bridge", "loses its answer"):
        added = call(directory, "ADD")
    assert added.returncode == 1
    assert added.stdout == b""
    assert added.stderr == b'{"real": "ADD"}\n'


def test_a_plugin_that_somebody_else_left_broken_is_restored(directory):
    (directory / REAL).mkdir()
    (directory / "bridge").rename(directory / REAL / "bridge")
    (directory / "bridge").write_bytes(CNI_FAILURES["fails"])
    restore_cni(directory)
    restore_cni(directory)
    assert (directory / "bridge").read_text() == WORKS
