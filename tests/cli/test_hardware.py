"""`podwire hardware`: what it prints, what it refuses."""

import json

import pytest

from podwire.cli.main import main


def test_profiles_are_listed_each_with_a_sentence(capsys):
    assert main(["hardware", "profiles"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["sriov", "two-numa"]
    assert all(line.endswith(".") for line in lines)


def test_a_profile_is_shown_as_a_table_as_json_and_as_it_is(capsys, tmp_path):
    assert main(["hardware", "show", "sriov"]) == 0
    table = capsys.readouterr().out
    assert "0000:3b:02.1  vf    ens1f0v1  0     pci0000:3b  iavf" in table
    assert main(["hardware", "show", "two-numa", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [item["kind"] for item in found] == ["nic"] * 8 + ["gpu"] * 8
    assert found[0] | {"rdma": "mlx5_0", "pcieRoot": "pci0000:15", "numaNode": 0} == found[0]
    assert main(["hardware", "show", "sriov", "--yaml"]) == 0
    copy = tmp_path / "own.yaml"
    copy.write_text(capsys.readouterr().out)
    assert main(["hardware", "show", str(copy)]) == 0
    assert capsys.readouterr().out == table


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["show", "nope"], "nor one of the profiles sriov, two-numa", id="no such profile"),
        pytest.param(
            ["unplug", "ens1", "--prefix", "/tmp/pw-none"], "no cluster with simulated hardware", id="no cluster"
        ),
    ],
)
def test_invalid_hardware_arguments_are_one_line_errors(capsys, words, says):
    assert main(["hardware", *words]) == 1
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_a_field_that_is_wrong_is_named(capsys, tmp_path):
    file = tmp_path / "own.yaml"
    file.write_text("nics: [{name: nic0, pci: 0000:3b:00.0, numa: 3}]")
    assert main(["hardware", "show", str(file)]) == 1
    assert "nics[0].numa: node 3 does not exist: numaNodes is 1" in capsys.readouterr().err
