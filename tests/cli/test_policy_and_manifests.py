"""`podwire policy explain` and `podwire manifests`, as far as they go without a cluster."""

import pytest
import yaml

from podwire.cli.main import main
from podwire.protocols.k8sapi.kubeconfig import Access, write_kubeconfig


@pytest.mark.parametrize("port", ["http", "0", "70000", "80/GRE", ""])
def test_an_invalid_port_is_a_usage_error(port, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["policy", "explain", "a", "b", port])
    assert ended.value.code == 2
    assert "is not PORT[/PROTOCOL]" in capsys.readouterr().err


def test_a_missing_cluster_is_reported_in_one_line(capsys, tmp_path):
    assert main(["policy", "explain", "a", "b", "80", "--kubeconfig", str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err


def test_several_kubeconfigs_of_the_environment_are_merged(capsys, tmp_path, monkeypatch):
    (tmp_path / "first").write_text("{}")
    (tmp_path / "second").write_text(write_kubeconfig(Access(server="http://127.0.0.1:1")))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/first:{tmp_path}/missing:{tmp_path}/second")
    assert main(["policy", "explain", "a", "b", "80"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_manifests_are_yaml_with_nothing_left_to_look_up(capsys):
    words = ["manifests", "nri-network", "--image", "example/podwire:1", "--api-server", "192.0.2.1:6443"]
    assert main(words) == 0
    text = capsys.readouterr().out
    kinds = [object_["kind"] for object_ in yaml.safe_load_all(text)]
    assert kinds == [
        *["CustomResourceDefinition"] * 2,
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "DaemonSet",
    ]
    assert "&id" not in text
    assert "image: example/podwire:1" in text
    assert "value: 192.0.2.1" in text


def test_an_api_server_without_a_port_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["manifests", "nri-network", "--api-server", "192.0.2.1"])
    assert "is not HOST:PORT" in capsys.readouterr().err
