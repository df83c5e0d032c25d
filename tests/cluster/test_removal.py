"""Leftovers of components that ran as DaemonSets are removed from a node, unless pods still use them."""

import pytest

from podwire.cli.main import main
from podwire.cniplugins.install import install


def test_uninstall_removes_plugins_network_and_empty_directories_and_can_be_repeated(tmp_path, capsys):
    root = tmp_path / "host"
    (root / "run/podwire-cni").mkdir(parents=True)
    (root / "etc/cni").mkdir(parents=True)
    (root / "etc/cni/10-pods.conflist").write_text("{}")
    install(str(root / "opt/bin"), socket="/run/podwire-cni/cni.sock", daemon_only=True)
    (root / "opt/bin/theirs").write_text("x")
    command = [
        *("cni", "uninstall", "/opt/bin", "--socket", "/run/podwire-cni/cni.sock"),
        *("--network-file", "/etc/cni/10-pods.conflist", "--root", str(root)),
    ]
    assert main(command) == 0
    assert str(root / "etc/cni/10-pods.conflist") in capsys.readouterr().out.splitlines()[0]
    files = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    assert files == {"opt/bin/theirs"}
    assert not (root / "run/podwire-cni").exists()
    assert main(command) == 0
    assert capsys.readouterr().out == ""


def test_uninstall_leaves_plugins_that_call_another_daemon(tmp_path, capsys):
    install(str(tmp_path / "opt/bin"), socket="/run/other.sock")
    assert main(["cni", "uninstall", "/opt/bin", "--root", str(tmp_path)]) == 1
    assert "belong to the daemon at /run/other.sock" in capsys.readouterr().err
    assert (tmp_path / "opt/bin/bridge").exists()


def test_uninstall_keeps_records_of_attachments(tmp_path):
    record = tmp_path / "var/lib/podwire/cni/attachments/one"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    assert main(["cni", "uninstall", "/opt/bin", "--root", str(tmp_path)]) == 0
    assert record.exists()


@pytest.mark.parametrize("prepared", [False, True])
def test_the_driver_is_removed_unless_claims_are_prepared(tmp_path, capsys, prepared):
    state, sockets = tmp_path / "var/lib/podwire/network-driver", tmp_path / "var/lib/kubelet/plugins/net.podwire.dev"
    (state / "records").mkdir(parents=True)
    sockets.mkdir(parents=True)
    if prepared:
        (state / "records/claim-1").write_text("{}")
    assert main(["network-driver", "--remove", "--root", str(tmp_path)]) == int(prepared)
    assert state.exists() is sockets.exists() is prepared
    assert ("delete their pods first (claim-1)" in capsys.readouterr().err) is prepared


def test_the_device_plugin_is_removed_with_its_cdi_files_only(tmp_path):
    state, cdi = tmp_path / "var/lib/podwire/device-plugin", tmp_path / "var/run/cdi"
    (state / "tun").mkdir(parents=True)
    cdi.mkdir(parents=True)
    (cdi / "net.podwire.dev-tun@tun-0.json").write_text("{}")
    (cdi / "vendor.json").write_text("{}")
    assert main(["device-plugin", "--remove", "--root", str(tmp_path)]) == 0
    assert not state.exists()
    assert [path.name for path in cdi.iterdir()] == ["vendor.json"]
