"""Names of clusters, the current one, and the variables of a shell."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from podwire.cli import current_cluster, main
from podwire.cli.options import chosen_prefix, cluster_flag
from podwire.cluster.up import named_clusters, state
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.named_clusters import BadName, clusters, context_of, name_of, prefix_of
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.state import NodeRecord, State


@pytest.fixture
def place():
    """A directory with a short path, as prefixes have."""
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as directory:
        yield Path(directory)


@pytest.fixture(autouse=True)
def home(place, monkeypatch):
    """A user without a current cluster, at a machine without named ones."""
    for name in ("PODWIRE_PREFIX", "SUDO_UID", "SUDO_GID", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(place / "home"))
    monkeypatch.setattr(named_clusters, "DIRECTORY", place / "clusters")
    (place / "home").mkdir()
    return place / "home"


def make_record(prefix: Path) -> None:
    nodes = (NodeRecord(name="node-1", number=1, own=True), NodeRecord(name="node-2", number=2, own=True))
    state.save(Layout(prefix).record, State(slot=3, nodes=nodes))


@pytest.mark.parametrize("name", ["dev", "a", "ci-1", "x" * 14])
def test_a_name_is_a_prefix_that_is_short_enough_and_back(name, monkeypatch):
    monkeypatch.setattr(named_clusters, "DIRECTORY", Path("/var/lib/podwire-clusters"))
    prefix = prefix_of(name)
    assert prefix == Path("/var/lib/podwire-clusters", name)
    assert len(os.fsencode(prefix)) <= 40
    assert name_of(prefix) == name
    assert context_of(Layout(prefix)) == f"podwire-{name}"
    assert cluster_flag(prefix) == f" --name {name}"


@pytest.mark.parametrize("name", ["", "Dev", "a/b", "..", "-a", "a-", "x" * 15, "ä", "a b"])
def test_a_name_that_is_not_one_is_refused(name):
    with pytest.raises(BadName, match="is not the name of a cluster"):
        prefix_of(name)


def test_the_cluster_below_the_root_is_called_default():
    assert (prefix_of("default"), name_of(Path("/")), context_of(Layout(Path("/")))) == (
        Path("/"),
        "default",
        "podwire",
    )
    assert name_of(Path("/srv/pw")) == ""
    assert cluster_flag(Path("/srv/pw")) == " --prefix /srv/pw"


def test_clusters_are_listed_with_their_state(place):
    make_record(place / "clusters/dev")
    (place / "clusters/empty").mkdir()
    [entry] = [entry for entry in clusters(SlotClaims(place / "slots")) if entry.prefix != "/"]
    assert (entry.name, entry.state, entry.nodes, entry.api_server) == ("dev", "stopped", 2, "https://127.0.0.1:16446")


def test_a_damaged_record_is_listed_as_damaged(place):
    make_record(place / "clusters/dev")
    Layout(place / "clusters/dev").record.write_bytes(b"nonsense")
    assert "damaged" in [entry.state for entry in clusters(SlotClaims(place / "slots"))]


def test_the_prefix_is_chosen_by_variable_then_by_use(monkeypatch, place):
    assert chosen_prefix() is None
    current_cluster.write("dev")
    assert chosen_prefix() == place / "clusters/dev"
    monkeypatch.setenv("PODWIRE_PREFIX", "/srv/pw")
    assert chosen_prefix() == Path("/srv/pw")
    current_cluster.write("")
    monkeypatch.delenv("PODWIRE_PREFIX")
    assert chosen_prefix() is None


def test_use_refuses_an_unknown_cluster_and_names_the_known(capsys, place):
    make_record(place / "clusters/dev")
    assert main.main(["use", "prod"]) == 1
    assert "no cluster 'prod', there are" in capsys.readouterr().err
    assert main.main(["use", "dev"]) == 0
    assert main.main(["use"]) == 0
    assert capsys.readouterr().out.endswith("\ndev\n")


@pytest.mark.parametrize("text", ["/etc", "../x", "Dev", "x" * 500])
def test_a_damaged_choice_is_an_error_that_says_what_helps(capsys, home, text):
    current_cluster.path().parent.mkdir(parents=True)
    current_cluster.path().write_text(text)
    with pytest.raises(SystemExit) as end:
        main.main(["kubeconfig"])
    assert end.value.code == 2
    assert "choose one with `podwire use`" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_choice_belongs_to_the_user_who_called_sudo(home, monkeypatch):
    os.chown(home, 65534, 65534)
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    monkeypatch.setattr(current_cluster, "path", lambda: home / ".config/podwire/cluster")
    for parent in home.parents:  # as a home is: others may pass through what is above it
        if parent.stat().st_uid == 0 and str(parent).startswith("/tmp/"):
            parent.chmod(parent.stat().st_mode | 0o111)
    current_cluster.write("dev")
    status = (home / ".config/podwire/cluster").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (65534, 65534, 0o600)
    assert os.geteuid() == 0


def test_variables_for_a_shell_can_be_evaluated(capsys, place):
    prefix = place / "clusters/dev"
    kubeconfig = Layout(prefix).kubeconfig
    assert main.main(["env", "--name", "dev"]) == 1
    assert "does not exist yet" in capsys.readouterr().err
    kubeconfig.parent.mkdir(parents=True)
    kubeconfig.write_text("{}")
    assert main.main(["env", "--name", "dev"]) == 0
    assert capsys.readouterr().out == f"export PODWIRE_PREFIX={prefix}\nexport KUBECONFIG={kubeconfig}\n"
    assert main.main(["env", "--name", "dev", "--shell", "fish"]) == 0
    assert capsys.readouterr().out.startswith(f"set -gx PODWIRE_PREFIX {prefix}\n")
    assert main.main(["env", "--name", "dev", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["KUBECONFIG"] == str(kubeconfig)
