"""The lines about whole pods: what is held against what, where a trace says that time went, and a short run."""

import tempfile
from pathlib import Path

import pytest

from benchmarks import clusters, island, pod_client, pods
from benchmarks.figures import table
from benchmarks.machine import CannotMeasure
from benchmarks.pod_steps import Step, average, steps
from podwire.trace.pod_trace import Arrow, Turn


def lines_of(figures):
    return [" ".join(line.split()) for line in table(list(figures)).splitlines()]


def test_one_pod_is_held_against_the_recorded_cluster_and_the_budget_is_a_time():
    times = pods.Times(start=[0.2, 0.1, 0.11], no_token=[0.13, 0.13], delete=[0.1, 0.18], left=[0.2])
    lines = lines_of(pods.one_at_a_time(times))
    assert "POST → Running, p50 110 ms 600 ms* 0.18x ≤ 0.2x met" in lines
    assert "the same, held against what is wanted later 110 ms 88.0 ms 1.25x ≤ 1x NOT MET" in lines
    assert "POST → Running without a token, p50 130 ms 352 ms* 0.37x ≤ 0.34x NOT MET" in lines
    assert "DELETE → gone, p50 140 ms 850 ms* 0.16x ≤ 0.18x met" in lines


@pytest.mark.parametrize(
    ("count", "line"),
    [
        pytest.param(50, "all Running 2.00 s 12.0 s* 0.17x ≤ 0.25x met", id="fifty"),
        pytest.param(20, "all Running 2.00 s", id="fewer are held against nothing"),
    ],
)
def test_many_pods_have_a_budget_when_they_are_fifty(count, line):
    assert line in lines_of(pods.many_at_once(pods.Together(2.0, 1.0, 1.5, 1.2, 190.0), count))


def test_the_other_runtime_is_measured_in_the_same_run():
    one, other = pods.Times([0.1], [0.1], [0.1], [0.1]), pods.Times([0.4], [0.2], [0.3], [0.3])
    many, others = pods.Together(2.0, 1.0, 1.0, 1.0, 190.0), pods.Together(8.0, 2.0, 2.0, 2.0, 380.0)
    lines = lines_of(pods.on_containerd({"ours": one, "containerd": other}, {"ours": many, "containerd": others}, 50))
    assert "POST → Running, p50 100 ms 400 ms 0.25x" in lines
    assert "50 at once, all Running 2.00 s 8.00 s 0.25x" in lines


@pytest.mark.parametrize(
    ("more", "verdict"),
    [pytest.param(0.0, "met", id="flat"), pytest.param(0.001, "NOT MET", id="a millisecond for each pod")],
)
def test_a_start_may_not_take_longer_the_more_pods_there_are(more, verdict):
    lines = lines_of(pods.in_a_row([0.1 + more * number for number in range(110)]))
    assert next(line for line in lines if line.startswith("the last 10")).endswith(f"≤ 1.2x {verdict}")
    assert lines[5].startswith(f"more for each pod that is there {'1 000' if more else '0'}")


def call(callee, method, begin, took, caller="Kubelet"):
    return Arrow(
        time=begin / 1e3, caller=caller, callee=callee, method=method, turn=Turn.CALL, label="", took=took / 1e3
    )


STORY = [
    call("APIServer", "POST /api/v1/namespaces/default/pods", 0, 2, "benchmark"),
    call("APIServer", "POST /api/v1/namespaces/default/pods/a/binding", 4, 2, "Scheduler"),
    call("APIServer", "PATCH /api/v1/namespaces/default/pods/a/status", 8, 2),
    call("ContainerRuntime", "RunPodSandbox", 10, 40),
    call("CNIPlugin", "ADD bridge", 12, 20, "ContainerRuntime"),
    call("CNIPlugin", "ADD portmap", 32, 10, "ContainerRuntime"),
    call("ContainerRuntime", "CreateContainer", 53, 7),
    call("ContainerRuntime", "StartContainer", 61, 19),
    call("ContainerRuntime", "crun run", 65, 9, "ContainerRuntime"),
    call("APIServer", "PATCH /api/v1/namespaces/default/pods/a/status", 84, 3),
    call("APIServer", "POST /api/v1/namespaces/default/events", 90, 3),
]


def test_a_trace_is_cut_where_one_waits_for_the_other():
    found = steps(STORY)
    in_order = [item.value for item in list(found.values())[:9]]
    assert in_order == pytest.approx([4, 6, 40, 3, 7, 1, 19, 4, 3])
    assert sum(in_order) == pytest.approx(87), "nothing is left out and nothing counted twice"
    assert found["CNI plugins, within RunPodSandbox"].value == pytest.approx(30)
    assert found["crun, within StartContainer"].value == pytest.approx(9)
    assert found["requests to the API server"].value == 4, "what comes later is not the pod's start"
    assert found["calls of the runtime"].value == 3


@pytest.mark.parametrize("missing", [0, 3, 9], ids=["no POST", "no sandbox", "never reported"])
def test_an_incomplete_trace_does_not_count(missing):
    assert steps([each for number, each in enumerate(STORY) if number != missing]) == {}


def test_steps_of_several_pods_are_medians():
    assert average([{"a": Step(item, " ms")} for item in (1.0, 9.0, 2.0)]) == {"a": Step(2.0, " ms")}
    assert average([]) == {}


def test_a_pod_runs_when_it_has_an_address_and_is_ready():
    ready = {"phase": "Running", "podIP": "10.1.0.2", "conditions": [{"type": "Ready", "status": "True"}]}
    assert pod_client.runs({"status": ready})
    for missing in ready:
        assert not pod_client.runs({"status": {name: each for name, each in ready.items() if name != missing}})


@pytest.fixture
def islands(monkeypatch):
    """All that are made, in a directory that is looked at afterwards; its path is short enough for sockets."""
    made = []

    class Recorded(island.Island):
        def __init__(self, place: Path) -> None:
            super().__init__(place)
            made.append(self)

    with tempfile.TemporaryDirectory(prefix="p-") as folder:
        monkeypatch.setattr(island, "Island", Recorded)
        monkeypatch.setattr(island, "DISK", folder)
        yield made
        assert list(Path(folder).iterdir()) == []
        assert [item.groups() for item in made if item.groups()] == []


def test_a_short_run_measures_a_cluster_and_leaves_nothing(islands, monkeypatch):
    monkeypatch.setattr(pods, "COLD_STARTS", 1)
    monkeypatch.setattr(pods, "_has_containerd", lambda: False)
    figures = {item.what: item for item in pods.measure(0.1)}
    assert {pods.START, pods.DELETE, pods.ALL_START, "StartContainer", "memory of all components"} <= set(figures)
    assert figures["StartContainer"].value > 0
    assert figures["memory of all components"].value > 10
    assert len(islands) == 1


def test_a_cluster_that_does_not_come_up_is_quoted(islands, monkeypatch):
    monkeypatch.setattr(clusters, "PODWIRE", ["sh", "-c", "echo not today; exit 1"])
    with pytest.raises(CannotMeasure, match="not today"), clusters.podwire():
        pass
    assert len(islands) == 1
