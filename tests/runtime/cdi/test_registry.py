"""Devices by name, described in files that others put on the node."""

import json

import pytest
import yaml

from podwire.runtime.cdi import BadDevice, Registry
from podwire.runtime.cdi.names import parse_name

KIND = "example.dev/nic"


def described(*devices, **more):
    return {"cdiVersion": "0.6.0", "kind": KIND, "devices": list(devices), **more}


def device(name, **edits):
    return {"name": name, "containerEdits": edits}


@pytest.fixture
def node(tmp_path):
    """Two directories as a node has them, and what is described there."""
    places = [tmp_path / "etc", tmp_path / "run"]
    for item in places:
        item.mkdir()

    def write(place, name, content):
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / place / name).write_text(text)

    return Registry(places), write


def test_a_device_brings_its_own_edits_and_those_of_its_file_once(node):
    registry, write = node
    write(
        "etc",
        "a.json",
        described(device("0", env=["A=0"]), device("1", env=["A=1"]), containerEdits={"env": ["ALL=1"]}),
    )
    assert registry.resolve([f"{KIND}=0"])["env"] == ["ALL=1", "A=0"]
    assert registry.resolve([f"{KIND}=0", f"{KIND}=1", f"{KIND}=0"])["env"] == ["ALL=1", "A=0", "A=1"]


def test_yaml_is_read_too(node):
    registry, write = node
    write("etc", "a.yaml", yaml.safe_dump(described(device("0", additionalGids=[0, 7]))))
    assert registry.resolve([f"{KIND}=0"])["additionalGids"] == [7], "group 0 is what everybody has"


def test_new_and_removed_spec_files_take_effect_at_once(node, tmp_path):
    registry, write = node
    with pytest.raises(BadDevice, match=r"no file in .* describes it"):
        registry.resolve([f"{KIND}=0"])
    write("run", "a.json", described(device("0", env=["V=1"])))
    assert registry.resolve([f"{KIND}=0"])["env"] == ["V=1"]
    write("run", "a.json", described(device("0", env=["V=22"])))
    assert registry.resolve([f"{KIND}=0"])["env"] == ["V=22"]
    (tmp_path / "run/a.json").unlink()
    with pytest.raises(BadDevice):
        registry.resolve([f"{KIND}=0"])


def test_a_later_directory_wins_and_two_files_of_one_conflict(node):
    registry, write = node
    write("etc", "a.json", described(device("0", env=["FROM=etc"])))
    write("run", "a.json", described(device("0", env=["FROM=run"])))
    assert registry.resolve([f"{KIND}=0"])["env"] == ["FROM=run"]
    write("run", "b.json", described(device("0")))
    with pytest.raises(BadDevice, match=r"described by .*/run/a.json and .*/run/b.json"):
        registry.resolve([f"{KIND}=0"])


def test_a_device_file_has_the_hosts_type_and_numbers(node):
    registry, write = node
    write("etc", "a.json", described(device("0", deviceNodes=[{"path": "/dev/mine", "hostPath": "/dev/null"}])))
    (found,) = registry.resolve([f"{KIND}=0"])["deviceNodes"]
    assert found == {"path": "/dev/mine", "type": "c", "major": 1, "minor": 3}


BAD = {
    "no kind": ({"cdiVersion": "0.6.0", "devices": []}, "kind"),
    "a kind without a vendor": (described() | {"kind": "nic"}, "is not vendor/class"),
    "a later version": (described() | {"cdiVersion": "9.0.0"}, "cdiVersion"),
    "no version": (described() | {"cdiVersion": "new"}, "cdiVersion"),
    "a field that nobody knows": (described(more=1), "more"),
    "an edit that nobody knows": (described(device("0", intelRdt={})), "intelRdt"),
    "a bad name": (described(device("-")), "not a valid device name"),
    "a stage that is none": (
        described(device("0", hooks=[{"hookName": "later", "path": "/x"}])),
        "must be one of createContainer",
    ),
    "a relative path": (described(device("0", mounts=[{"hostPath": "/x", "containerPath": "x"}])), "absolute"),
    "a variable without a name": (described(device("0", env=["=1"])), "NAME=VALUE"),
    "no JSON": ("{", "truncated"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_invalid_file_affects_only_its_own_devices(node, case):
    registry, write = node
    content, why = BAD[case]
    write("etc", "bad.json", content)
    write("etc", "good.json", described(device("good", env=["A=1"])))
    assert registry.resolve([f"{KIND}=good"])["env"] == ["A=1"]
    with pytest.raises(BadDevice, match=why):
        registry.resolve([f"{KIND}=other"])


@pytest.mark.parametrize("node_", [{"path": "/dev/x"}, {"path": "/etc/passwd"}, {"path": "/dev/null", "type": "b"}])
def test_a_device_file_that_is_none_is_refused(node, node_):
    registry, write = node
    write("etc", "a.json", described(device("0", deviceNodes=[node_])))
    with pytest.raises(BadDevice, match="deviceNodes"):
        registry.resolve([f"{KIND}=0"])


@pytest.mark.parametrize("text", ["", "nic=0", "example.dev/nic", "example.dev/nic=", "/nic=0", "a/b=c d", "a/b=/etc"])
def test_names_that_are_none(text):
    with pytest.raises(BadDevice):
        parse_name(text)
