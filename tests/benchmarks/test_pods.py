"""The lines about runtimes and plugins: which are held against what, and that a short run leaves nothing behind."""

import tempfile
from pathlib import Path

import pytest

from benchmarks import cni, cni_crowd, island, runtime
from benchmarks.figures import table
from benchmarks.machine import CannotMeasure


def times(seconds: float) -> runtime.Times:
    return {step: [seconds, seconds * 3, seconds * 2] for step in runtime.STEPS}


def test_medians_are_compared_with_containerd_of_the_same_run():
    taken = {"reference plugins": times(0.01), "our plugins": times(0.02), "containerd": times(0.05)}
    lines = table(list(runtime.one_at_a_time(taken))).splitlines()
    assert [line.split() for line in lines if line.startswith("  RunPodSandbox")] == [
        ["RunPodSandbox", "20.0", "ms", "100", "ms", "0.20x", "≤", "0.5x", "met"],
        ["RunPodSandbox", "40.0", "ms", "100", "ms", "0.40x"],
    ]
    assert lines[-1] == "budgets: 2 of 2 met"


def test_without_containerd_recorded_figures_are_used_and_marked():
    lines = table(list(runtime.one_at_a_time({"reference plugins": times(0.04)}))).splitlines()
    assert lines[3].split() == ["RunPodSandbox", "80.0", "ms", "125", "ms*", "0.64x", "≤", "0.5x", "NOT", "MET"]
    assert lines[-2].startswith("* containerd 2.3.4: recorded earlier")


@pytest.mark.parametrize(
    ("peer", "line"),
    [
        pytest.param({"containerd": times(2.0)}, "RunPodSandbox 1.00 s 2.00 s 0.50x", id="beside containerd"),
        pytest.param({}, "RunPodSandbox 1.00 s", id="alone"),
    ],
)
def test_many_pods_at_once_are_shown_in_seconds(peer, line):
    lines = table(list(runtime.many_at_once({"our plugins": times(1.0), **peer}, 20))).splitlines()
    assert lines[2] == "Runtime, 20 pods at once, our plugins"
    assert lines[3].split() == line.split()


def test_plugins_are_held_against_the_reference():
    key = ("ADD", "plain")
    taken = {"daemon": {key: [0.03, 0.02, 0.01]}, "python": {key: [0.08]}, "reference": {key: [0.04]}}
    daemon, helper, python = cni.figures(taken | {"helper": {key: [0.03]}})
    assert (helper.what, helper.value, helper.ratio) == ("ADD, plain, without the daemon", 30.0, 0.75)
    assert (daemon.what, daemon.value, daemon.ratio) == ("ADD, plain, through the daemon", 20.0, 0.5)
    assert (python.what, python.value, python.ratio) == ("ADD, plain, each a Python", 80.0, 2.0)


@pytest.fixture
def islands(monkeypatch):
    """All that are made, in a directory that is looked at afterwards; its path is short enough for sockets."""
    made = []

    class Recorded(island.Island):
        def __init__(self, place: Path) -> None:
            super().__init__(place)
            made.append(self)

    with tempfile.TemporaryDirectory(prefix="pb-") as disk:
        monkeypatch.setattr(island, "Island", Recorded)
        for item in (island, runtime, cni):
            monkeypatch.setattr(item, "DISK", disk)
        yield made
        assert list(Path(disk).iterdir()) == []


def test_a_short_run_measures_runtimes_and_leaves_nothing(islands):
    figures = list(runtime.measure(0.1))
    assert {figure.what for figure in figures} == set(runtime.STEPS)
    assert all(figure.value > 0 for figure in figures)
    assert len(islands) >= 2
    assert [island.groups() for island in islands if island.groups()] == []


def test_a_runtime_that_refuses_a_pod_ends_the_run_and_leaves_nothing(islands, monkeypatch):
    monkeypatch.setattr(runtime, "COMMAND", ["no-such-program"])
    with pytest.raises(CannotMeasure, match=r"a runtime refused a pod: .*no-such-program"):
        list(runtime.measure(0.1))
    assert [island.groups() for island in islands if island.groups()] == []


def test_a_program_that_does_not_come_up_is_quoted(islands):
    with pytest.raises(CannotMeasure, match="sh did not come up: not today"), island.island() as at:
        at.start(["sh", "-c", "echo not today"], lambda: False)


def test_a_short_run_measures_plugins(islands, monkeypatch):
    monkeypatch.setattr(cni_crowd, "AT_ONCE", 3)
    monkeypatch.setattr(cni_crowd, "ATTACHED", 50)
    figures = list(cni.measure(0.1))
    calls = ["ADD, plain", "DEL, plain", "ADD, ipMasq", "DEL, ipMasq"]
    assert [figure.what for figure in figures[:4]] == [f"{call}, through the daemon" for call in calls]
    assert all(f"{call}, {way}" in {figure.what for figure in figures} for way in cni.OURS.values() for call in calls)
    assert all(figure.value > 0 for figure in figures)
