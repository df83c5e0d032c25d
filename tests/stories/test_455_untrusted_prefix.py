"""A prefix that another user can change is refused: what that user planted is neither executed nor followed."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podwire.protocols.k8sapi.kubeconfig import Access, write_kubeconfig
from tests.stories.machine_support import PODWIRE, Machine

NOBODY = 65534


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.close()


@pytest.fixture
def prefix() -> Iterator[Path]:
    """A directory of nobody in /tmp, such as everybody can make there."""
    path = Path(tempfile.mkdtemp(prefix="pwx-", dir="/tmp"))
    own(path)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def treasure(tmp_path: Path) -> Path:
    """A directory of root with a file."""
    path = tmp_path / "treasure"
    (path / "components").mkdir(parents=True)
    (path / "file").write_text("precious")
    return path


def own(*paths: Path) -> None:
    for path in paths:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def refused(machine: Machine, *words: object) -> str:
    done = machine.run(PODWIRE, *words)
    assert done.returncode == 1, f"{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stderr


def plant_plugin(prefix: Path) -> Path:
    """An NRI plugin that leaves a mark when somebody executes it."""
    plugin, mark = prefix / "opt/nri/plugins/10-evil", prefix / "executed"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(f"#!/bin/sh\nid -u > {mark}\nexec sleep 1\n")
    plugin.chmod(0o755)
    own(prefix / "opt", prefix / "opt/nri", prefix / "opt/nri/plugins", plugin)
    return mark


@pytest.mark.parametrize(
    ("hand_over", "culprit"),
    [
        pytest.param(lambda _prefix: None, "", id="the prefix is nobody's"),
        pytest.param(lambda prefix: os.chown(prefix, 0, 0), "/opt", id="a directory in it is nobody's"),
        pytest.param(
            lambda prefix: [os.chown(prefix / path, 0, 0) for path in ("", "opt", "opt/nri", "opt/nri/plugins")],
            "/opt/nri/plugins/10-evil",
            id="a plugin in it is nobody's",
        ),
    ],
)
def test_a_plugin_that_another_user_planted_is_not_executed(
    machine: Machine, prefix: Path, hand_over: Callable[[Path], object], culprit: str
):
    mark = plant_plugin(prefix)
    hand_over(prefix)
    for words in (("up", "--detach"), ("runtime", "--socket", prefix / "cri.sock")):
        error = refused(machine, *words, "--prefix", prefix)
        assert f"{prefix}{culprit} belongs to nobody, who could change what is done there as root" in error
    assert not mark.exists()
    assert not (prefix / "var/lib/podwire/up.json").exists()


@pytest.mark.parametrize("link", ["run/podwire", "run", "var/lib/podwire", "var/log/podwire"])
@pytest.mark.parametrize("planted_by", [0, NOBODY], ids=["root's link", "nobody's link"])
def test_down_does_not_empty_a_directory_that_a_link_leads_to(
    machine: Machine, prefix: Path, treasure: Path, link: str, planted_by: int
):
    os.chown(prefix, 0, 0)
    (prefix / link).parent.mkdir(parents=True, exist_ok=True)
    (prefix / link).symlink_to(treasure)
    os.chown(prefix / link, planted_by, planted_by, follow_symlinks=False)
    (prefix / "run/podwire/components").mkdir(parents=True, exist_ok=True)  # so that `down` finds a cluster
    before = {path: path.is_file() for path in treasure.rglob("*")}
    error = refused(machine, "down", "--prefix", prefix)
    assert f"{prefix}/{link}" in error
    assert "symlink where a directory belongs" in error or "belongs to nobody" in error
    assert {path: path.is_file() for path in treasure.rglob("*")} == before
    refused(machine, "up", "--detach", "--prefix", prefix)
    assert {path: path.is_file() for path in treasure.rglob("*")} == before


def test_down_in_a_prefix_of_another_user_does_nothing(machine: Machine, prefix: Path, treasure: Path):
    (prefix / "run").mkdir()
    (prefix / "run/podwire").symlink_to(treasure)
    own(prefix / "run", prefix / "run/podwire")
    assert f"{prefix} belongs to nobody" in refused(machine, "down", "--prefix", prefix)
    assert (treasure / "file").read_text() == "precious"


@pytest.mark.parametrize(
    ("mode", "says"), [(0o777, "writable by others than its owner"), (0o770, "writable by others than its owner")]
)
def test_a_prefix_that_others_may_write_to_is_refused(machine: Machine, prefix: Path, mode: int, says: str):
    os.chown(prefix, 0, NOBODY)
    prefix.chmod(mode)
    error = refused(machine, "up", "--detach", "--prefix", prefix)
    assert f"{prefix} is {says} (mode {mode:04o})" in error
    assert f"chmod go-w {prefix}" in error
    assert list(prefix.iterdir()) == []


def test_a_prefix_in_a_directory_that_everybody_may_rename_in_is_refused(machine: Machine, prefix: Path):
    os.chown(prefix, 0, 0)
    prefix.chmod(0o777)
    error = refused(machine, "up", "--detach", "--prefix", prefix / "pw")
    assert f"{prefix} is writable by everybody and not sticky" in error
    assert list(prefix.iterdir()) == []


def test_reading_commands_refuse_the_state_of_another_user(machine: Machine, prefix: Path):
    for words in (("status",), ("kubeconfig",), ("leakcheck",), ("node", "exec", "node-1", "--", "true")):
        position = words.index("node-1") if "node-1" in words else len(words)
        error = refused(machine, *words[:position], "--prefix", prefix, *words[position:])
        assert f"{prefix} belongs to nobody" in error, words


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("apiserver --listen 127.0.0.1:0 --data-dir DIR", id="apiserver"),
        pytest.param("kubelet --kubeconfig FILE --root-dir DIR", id="kubelet"),
        pytest.param("network-driver --kubeconfig FILE --kubelet-dir WORK --state-dir DIR", id="network driver"),
        pytest.param("device-plugin --config POOLS --state-dir DIR", id="device plugin"),
        pytest.param("image list --prefix DIR", id="image"),
        pytest.param("trace --prefix DIR", id="trace"),
    ],
)
def test_single_components_refuse_a_directory_of_another_user(
    machine: Machine, prefix: Path, tmp_path: Path, words: str
):
    (tmp_path / "kubeconfig").write_text(write_kubeconfig(Access(server="https://127.0.0.1:1", token="t")))
    (tmp_path / "pools.yaml").write_text("pools: [{name: tun, files: {paths: [/dev/net/tun]}}]\n")
    paths = {"DIR": prefix, "FILE": tmp_path / "kubeconfig", "POOLS": tmp_path / "pools.yaml", "WORK": tmp_path}
    error = refused(machine, *(paths.get(word, word) for word in words.split()))
    assert f"{prefix} belongs to nobody" in error
    assert list(prefix.iterdir()) == []
