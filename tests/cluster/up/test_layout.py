import json
from pathlib import Path

import pytest

from podwire.cluster.up import state
from podwire.cluster.up.layout import LONGEST, BadPrefix, layout_of
from podwire.cluster.up.state import BrokenState, NodeRecord, State
from podwire.durable.records import NewerFormat


def test_a_prefix_that_is_too_long_for_sockets_is_refused():
    assert layout_of(Path("/" + "a" * (LONGEST - 1))).prefix
    with pytest.raises(BadPrefix, match="longer than 40 bytes"):
        layout_of(Path("/" + "a" * LONGEST))


def test_a_prefix_that_is_a_file_is_refused():
    with pytest.raises(BadPrefix, match="Not a directory"):
        layout_of(Path("/etc/passwd"))


def test_everything_lies_below_the_prefix():
    layout = layout_of(Path("/nowhere/pw"))
    places = (layout.state, layout.run, layout.logs, layout.record, layout.kubeconfig, layout.pin("n", "net"))
    assert all(path.is_relative_to("/nowhere/pw") for path in places)
    assert layout.kubeconfig == Path("/nowhere/pw/var/lib/podwire/kubeconfig")


KEPT = State(slot=3, nodes=(NodeRecord(name="node-1", number=1, own=True),), made=("/tmp/pw/run",))


def test_state_round_trips(tmp_path):
    assert state.load(tmp_path / "up.json") is None
    state.save(tmp_path / "up.json", KEPT)
    assert state.load(tmp_path / "up.json") == KEPT
    state.remove(tmp_path / "up.json")
    assert state.load(tmp_path / "up.json") is None


def test_the_state_of_a_later_podwire_is_refused(tmp_path):
    (tmp_path / "up.json").write_text('{"format":3,"checksum":"00000000","record":{"everything":"else"}}')
    with pytest.raises(NewerFormat, match="format 3; this one supports up to 2"):
        state.load(tmp_path / "up.json")


def test_a_broken_state_is_reported_and_quarantined(tmp_path):
    (tmp_path / "up.json").write_text("{")
    with pytest.raises(BrokenState):
        state.load(tmp_path / "up.json")
    with pytest.raises(BrokenState, match="podwire down"):  # also after it was quarantined
        state.load(tmp_path / "up.json")
    assert state.exists(tmp_path / "up.json")
    state.remove(tmp_path / "up.json")
    assert not state.exists(tmp_path / "up.json")


def test_state_of_format_1_is_read_and_replaced(tmp_path):
    old = {"slot": 3, "nodes": [{"name": "node-1", "number": 1, "own": True}], "runtime": "podwire", "store": "",
           "made": ["/tmp/pw/var"], "hardware": None, "format": 1}  # fmt: skip
    (tmp_path / "up.json").write_text(json.dumps(old, indent=2) + "\n")
    loaded = state.load(tmp_path / "up.json")
    assert loaded == State(slot=3, nodes=(NodeRecord(name="node-1", number=1, own=True),), made=("/tmp/pw/var",))
    state.save(tmp_path / "up.json", loaded)
    assert json.loads((tmp_path / "up.json").read_text())["format"] == 2
    assert state.load(tmp_path / "up.json") == loaded


def test_plain_state_of_an_unknown_format_is_refused(tmp_path):
    (tmp_path / "up.json").write_text('{"format": 2, "everything": "else"}')
    with pytest.raises(NewerFormat):
        state.load(tmp_path / "up.json")
    assert (tmp_path / "up.json").exists()
