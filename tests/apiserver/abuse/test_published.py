"""A walk over what the server itself publishes: every operation is there, nothing else is, and none of them fails."""

from collections.abc import Iterator
from typing import Any

import pytest

METHODS = ("get", "put", "post", "patch", "delete")
BODIES = (None, b"", b"{}", b"[]", b"null", b'{"metadata":{"name":"thing"}}', b'{"spec":{}}', b"\xff")
WORDS = {"{name}": "thing", "{namespace}": "default", "{path}": "x/y"}


@pytest.fixture(scope="module")
def documents(shared_house) -> dict[str, Any]:
    index = shared_house.ask("GET", "/openapi/v3").body["paths"]
    return {name: shared_house.ask("GET", f"/openapi/v3/{name}").body for name in index}


def published(documents: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for document in documents.values():
        yield from document["paths"].items()


def real(path: str) -> str:
    for word, instead in WORDS.items():
        path = path.replace(word, instead)
    return path


def test_every_published_operation_is_served_and_no_other(shared_house, documents):
    """Verbs that a document does not list get 405; those that it lists get anything but that."""
    differences = []
    for path, item in published(documents):
        if path.startswith(("/api/v1/watch", "/apis/")) and "/watch/" in path:
            continue
        for method in METHODS:
            media = "application/merge-patch+json" if method == "patch" else "application/json"
            reply = shared_house.ask(method.upper(), real(path), b"{}" if method in ("put", "post", "patch") else None,
                                     media=media, query={"dryRun": "All", "timeoutSeconds": "1"})  # fmt: skip
            if (reply.status != 405) is not (method in item):
                differences.append((method, path, reply.status))
    assert not differences


def test_no_published_operation_fails_on_any_input(shared_house, documents):
    """503 is for what kubelets answer; 501 for what is published and not there yet."""
    for path, item in published(documents):
        for method in [method for method in METHODS if method in item]:
            for body in BODIES:
                for media in ("application/json", "application/merge-patch+json", "application/yaml"):
                    reply = shared_house.ask(method.upper(), real(path), body, media=media, query={"dryRun": "All"})
                    assert reply.status < 500 or reply.status in (501, 503), (method, path, body, reply.raw[:300])
                    if reply.status >= 400 and reply.content_type == "application/json":
                        assert reply.body["code"] == reply.status


def test_every_document_can_be_read_in_every_form(shared_house, documents):
    for path in (
        "/openapi/v2",
        *(f"/openapi/v3/{document}" for document in documents),
        "/api",
        "/apis",
        "/version",
        "/",
    ):
        for accept in (
            "",
            "application/json",
            "*/*",
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
            "x/y",
        ):
            assert shared_house.ask("GET", path, accept=accept).status in (200, 406)
