"""The lines about claims: a short run in a small cluster."""

from benchmarks import claims


def test_pods_with_claims_are_decided_on_and_bound_and_their_times_are_taken(monkeypatch):
    for name, small in (("NODES", 4), ("BOUND", 3)):
        monkeypatch.setattr(claims, name, small)
    figures = list(claims.measure(0.1))
    assert [figure.unit for figure in figures] == [" ms", "/s"]
    assert all(figure.value > 0 for figure in figures)
