"""The benchmark of the other forms of the API measures each of them."""

from benchmarks import forms


def test_protobuf_the_webhook_and_the_openapi_document_are_measured():
    figures = {figure.what: figure for figure in forms.measure(0.0, listed=5)}
    assert list(figures) == [
        "JSON, the first request",
        "JSON, again",
        "JSON, with its ETag: 304",
        "protobuf, the first request",
        "protobuf, again",
        "protobuf, with its ETag: 304",
        "LIST of 5 Pods, protobuf beside JSON",
        "CREATE ConfigMap with a webhook, beside its own time",
    ]
    overhead = figures.popitem()[1]  # a difference of few and noisy values: may be below zero here
    assert overhead.peer.value == 1.0
    assert all(figure.value > 0 for figure in figures.values())
    assert {figure.peer.name for figure in figures.values() if figure.peer} == {"budget", "JSON"}
