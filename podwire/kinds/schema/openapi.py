"""OpenAPI documents: one v3 document for each group and version, and as much of v2 as old clients need.

A document is rendered on first request (13 ms for core/v1, compression included) and cached. Its hash, which the index
contains, is computed from its sources and not from the result, so that the index needs no rendering.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

import podwire
from podwire.kinds.schema.components import META, components, custom_components, custom_name
from podwire.kinds.schema.definitions import VERSION, Definitions, load
from podwire.kinds.schema.documents import Document, clauses, compressed
from podwire.kinds.schema.operations import paths
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError, Reason

_FORM = "2"
"""Changes whenever documents are made in another way, for clients keep what they have seen by hash."""

_V2_TITLE = b"podwire"
_V2_ASKED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_V2_BODY = b"\x0a\x032.0\x12\x0d\x0a\x07" + _V2_TITLE + b"\x12\x02v1\x42\x00"
"""A gnostic Document with swagger, info and no paths: kubectl up to 1.28 insists on one and needs nothing of it."""

_V2_JSON = {"swagger": "2.0", "info": {"title": "podwire", "version": "v1"}, "paths": {}, "definitions": {}}


class _Part:
    """The kinds of one group and version, custom ones with their schemas."""

    def __init__(self) -> None:
        self.builtin: list[Kind] = []
        self.custom: list[tuple[Kind, dict[str, Any]]] = []

    def hash(self) -> str:
        source = msgspec.json.encode([podwire.__version__, VERSION, _FORM, self.builtin, self.custom])
        return hashlib.sha256(source).hexdigest().upper()


class OpenApi:
    """All OpenAPI documents of the server."""

    def __init__(self, kinds: Iterable[Kind], definitions: Definitions | None = None) -> None:
        self._definitions = definitions or load()
        self._builtin = tuple(kinds)
        self._parts: dict[str, _Part] = {}
        self._hashes: dict[str, str] = {}
        self._rendered: dict[str, Document] = {}
        self.replace_custom(())

    def replace_custom(self, kinds: Iterable[tuple[Kind, dict[str, Any]]]) -> None:
        """Set the custom kinds, each with its openAPIV3Schema (empty: anything); unchanged documents are kept."""
        parts: dict[str, _Part] = {}
        for kind in self._builtin:
            parts.setdefault(_path(kind), _Part()).builtin.append(kind)
        for kind, schema in kinds:
            parts.setdefault(_path(kind), _Part()).custom.append((kind, schema))
        hashes = {path: part.hash() for path, part in parts.items()}
        same = {path for path, digest in hashes.items() if self._hashes.get(path) == digest}
        self._rendered = {path: document for path, document in self._rendered.items() if path in same}
        self._parts, self._hashes = parts, hashes

    def index(self) -> bytes:
        """`/openapi/v3`."""
        urls = {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={self._hashes[path]}"}
            for path in sorted(self._hashes)
        }
        return msgspec.json.encode({"paths": urls})

    def document(self, path: str, hash: str = "") -> Document | None:  # noqa: A002 - the query parameter's name
        """`/openapi/v3/<path>`: api/v1, apis/apps/v1. A client that names the hash may keep it for ever."""
        if path not in self._parts:
            return None
        if path not in self._rendered:
            body = self._render(self._parts[path])
            etag = f'"{self._hashes[path]}"'
            self._rendered[path] = Document(body=body, gzipped=compressed(body), etag=etag, vary="Accept")
        kept = "public, immutable" if hash == self._hashes[path] else "no-cache, private"
        return replace(self._rendered[path], cache_control=kept)

    def v2(self, accept: str) -> tuple[str, bytes]:
        """`/openapi/v2`: content type and body; raises NotAcceptable."""
        for clause in clauses(accept):
            if clause.media in (_V2_ASKED, _V2_PROTOBUF):
                return _V2_PROTOBUF, _V2_BODY
            if clause.takes("application/json"):
                return "application/json", msgspec.json.encode(_V2_JSON)
        accepted = f"application/json, {_V2_ASKED}"
        raise ApiError(Reason.NOT_ACCEPTABLE, f"only the following media types are accepted: {accepted}")

    def _render(self, part: _Part) -> bytes:
        names = [f"{META}.{word}" for word in ("DeleteOptions", "ListMeta", "ObjectMeta", "Patch", "Status")]
        custom: dict[str, Any] = {}
        for kind, schema in part.custom:
            custom |= custom_components(kind, schema)

        def schema_of(group: str, version: str, kind: str) -> str | None:
            definition = self._definitions.name_of(group, version, kind)
            if definition:
                names.extend((definition, f"{definition}List"))
                return definition
            name = custom_name(group, version, kind)
            return name if name in custom else None

        all_paths = {path: operations for kind in part.builtin for path, operations in paths(kind, schema_of).items()}
        for kind, _ in part.custom:
            all_paths |= paths(kind, schema_of, custom=True)
        schemas = {**components(self._definitions, names), **custom}
        return msgspec.json.encode(
            {
                "openapi": "3.0.0",
                "info": {"title": "podwire", "version": f"v{VERSION}"},
                "paths": all_paths,
                "components": {"schemas": schemas},
            }
        )


def _path(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"
