"""The benchmark of the client compares it with the clients of others."""

from benchmarks import client


def test_all_clients_list_and_watch_the_same_pods():
    figures = list(client.compare(50, rounds=1))
    assert [figure.peer.name for figure in figures] == ["kubernetes", "kr8s", "lightkube"]
    assert all(figure.value > 0 and figure.peer.value > 0 for figure in figures)
