"""The command line of the network driver: errors are reported before anything runs."""

import tempfile

import pytest

from podwire.cli.main import main

WRONG = {
    "a key that nobody knows": ("uplink: eth0", "uplink: is not a setting"),
    "a filter that is none": ("filter: 'attributes['", "filter: "),
    "a pool without addresses": ("pools: {lab: {}}", "pools.lab"),
    "no YAML": ("a: [", "is not YAML"),
}


@pytest.mark.parametrize(("text", "why"), WRONG.values(), ids=WRONG)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, capsys, text, why):
    path = tmp_path / "driver.yaml"
    path.write_text(text)
    assert main(["network-driver", "--config", str(path), "--check"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"podwire network-driver: {path}: ")
    assert why in error
    assert "Traceback" not in error


def test_a_file_that_can_be_used_is_not(tmp_path, capsys):
    path = tmp_path / "driver.yaml"
    path.write_text(
        'filter: \'attributes["kind"] != "veth"\'\n'
        "shared: [{interface: eth1, slots: 16, bandwidth: 10G}]\n"
        "pools: {lab: {subnet: 10.9.0.0/24, rangeStart: 10.9.0.100}}\n"
    )
    assert main(["network-driver", "--config", str(path), "--check"]) == 0
    assert capsys.readouterr().err == ""


def test_a_missing_api_server_is_reported(capsys, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["network-driver", "--kubeconfig", "/no/such/file"]) == 1
    assert capsys.readouterr().err == "podwire network-driver: /no/such/file: No such file or directory\n"


@pytest.mark.parametrize("words", [("explain", "lan", "--kubeconfig"), ("--kubeconfig",)], ids=["after", "before"])
def test_options_of_explain_may_come_before_and_after_it(capsys, words):
    last = () if words[0] == "explain" else ("explain", "lan")
    assert main(["network-driver", *words, "/no/such/file", *last]) == 1
    assert "/no/such/file" in capsys.readouterr().err


def test_explain_without_a_cluster_names_the_prefix(capsys, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with tempfile.TemporaryDirectory(prefix="pw-", dir="/tmp") as prefix:  # a prefix must be short
        assert main(["network-driver", "explain", "lan", "--prefix", prefix]) == 1
    message = f"no cluster below {prefix}; `podwire up` creates one, --kubeconfig names another"
    assert capsys.readouterr().err == f"podwire network-driver: {message}\n"
