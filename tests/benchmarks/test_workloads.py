"""The benchmark of workloads on a real cluster, briefly."""

from benchmarks import workloads


def test_a_short_run_measures_workloads_and_counts_their_requests(monkeypatch):
    monkeypatch.setattr(workloads, "IDLE", 1.0)
    monkeypatch.setattr(workloads, "JOBS", 2)
    figures = {figure.what: figure for figure in workloads.measure(0.1)}
    assert figures["Deployment of 2: all available"].value > 0
    assert figures["rolling update of 2"].value > 0
    assert figures["2 Jobs: all complete"].value > 0
    # a pod is created, bound, gets a token and two statuses; the rest belongs to the workload and to events
    assert 5 <= figures["Deployment of 2: requests for each"].value < 60
    assert figures["API server and controllers with 2 Jobs"].value > 10
