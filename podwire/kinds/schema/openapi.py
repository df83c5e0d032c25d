"""OpenAPI documents: one v3 document for each group and version, and one v2 document for all, in JSON and protobuf.

A document is rendered on first request (13 ms for core/v1, 150 ms for v2, compression included) and cached, compressed.
Its hash, which is its ETag, is computed from its sources and not from the result: neither the index nor a client that
has the document needs rendering. Rendering works on what it is handed, so that it can run in a thread.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

import podwire
from podwire.kinds.schema import gnostic, merging, swagger
from podwire.kinds.schema.components import META, CustomComponents, components, custom_name
from podwire.kinds.schema.definitions import VERSION, Definitions, load
from podwire.kinds.schema.documents import Document, clauses
from podwire.kinds.schema.operations import paths
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError, Reason

_FORM = "3"
"""Changes whenever documents are made in another way, for clients keep what they have seen by hash."""

_V2_ASKED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_JSON = "application/json"
_ALWAYS = tuple(f"{META}.{word}" for word in ("DeleteOptions", "ListMeta", "ObjectMeta", "Patch", "Status"))


@dataclass(slots=True)
class _Part:
    """The kinds of one group and version, custom ones with their schemas."""

    builtin: list[Kind] = field(default_factory=list)
    custom: list[tuple[Kind, dict[str, Any]]] = field(default_factory=list)

    def is_unchanged(self, before: "_Part | None") -> bool:
        """Whether it has the same kinds and the very same schemas; comparing schemas would take as long as a hash."""
        return (
            before is not None
            and self.builtin == before.builtin
            and [kind for kind, _ in self.custom] == [kind for kind, _ in before.custom]
            and all(schema is known for (_, schema), (_, known) in zip(self.custom, before.custom, strict=True))
        )

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
        self._custom = CustomComponents(self._definitions)
        self._rendered: dict[str, Document] = {}
        """By hash."""
        self._others: tuple[tuple[str, dict[str, Any]], ...] = ()
        """Parts of v2 documents of other servers, each with its hash, in the order in which they are merged."""
        self.elsewhere: Mapping[str, str] = {}
        """Addresses of v3 documents that other servers have, by path; for the index."""
        self.replace_custom(())

    def replace_custom(self, kinds: Iterable[tuple[Kind, dict[str, Any]]]) -> None:
        """Set the custom kinds, each with its openAPIV3Schema (empty: anything); unchanged documents are kept."""
        parts: dict[str, _Part] = {}
        for kind in self._builtin:
            parts.setdefault(_path(kind), _Part()).builtin.append(kind)
        for kind, schema in kinds:
            parts.setdefault(_path(kind), _Part()).custom.append((kind, schema))
        # The schema of one kind may have a megabyte, and every change of every definition arrives here.
        hashes = {
            path: self._hashes[path] if part.is_unchanged(self._parts.get(path)) else part.hash()
            for path, part in parts.items()
        }
        self._parts, self._hashes = parts, hashes
        self._forget()

    def replace_others(self, others: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Sets the parts of v2 documents of other servers (see `other_part`), each with its hash."""
        if (given := tuple(others)) != self._others:
            self._others = given
            self._forget()

    def _forget(self) -> None:
        present = {*self._hashes.values(), self._v2_hash(_JSON), self._v2_hash(_V2_PROTOBUF)}
        self._rendered = {digest: document for digest, document in self._rendered.items() if digest in present}

    def index(self) -> bytes:
        """`/openapi/v3`."""
        own = {path: f"/openapi/v3/{path}?hash={digest}" for path, digest in self._hashes.items()}
        urls = sorted({**self.elsewhere, **own}.items())
        return msgspec.json.encode({"paths": {path: {"serverRelativeURL": url} for path, url in urls}})

    def document(self, path: str, hash: str = "") -> Document | None:  # noqa: A002 - the query parameter's name
        """`/openapi/v3/<path>`: api/v1, apis/apps/v1. A client that names the hash may keep it for ever."""
        part, digest = self._parts.get(path), self._hashes.get(path, "")
        if part is None:
            return None
        document = self._rendered.get(digest)
        if document is None:
            body = msgspec.json.encode(self._document([part]))
            document = self._rendered[digest] = Document.of(body, etag=f'"{digest}"', vary="Accept")
        return replace(document, cache_control="public, immutable" if hash == digest else "no-cache, private")

    def v2(self, accept: str) -> Document:
        """`/openapi/v2`. Raises NotAcceptable."""
        media, digest, parts = _v2_media(accept), self.v2_hash(accept), [*self._parts.values()]
        others = self._others
        document = self._rendered.get(digest)
        if document is None:
            content = self._content(parts, v2=True)
            schemas = content["components"]["schemas"]
            old: dict[str, Any] = {
                "swagger": "2.0",
                "info": {"title": "podwire", "version": f"v{VERSION}"},
                "paths": {path: swagger.path_item(item) for path, item in content["paths"].items()},
                "definitions": {name: swagger.definition(schema) for name, schema in schemas.items()},
            }
            for _, other in others:
                merging.merge(old, other)
            body = msgspec.json.encode(old) if media == _JSON else gnostic.encode(old)
            document = self._rendered[digest] = Document.of(
                body, content_type=media, etag=f'"{digest}"', cache_control="no-cache, private", vary="Accept"
            )
        return document

    def v2_hash(self, accept: str) -> str:
        """Returns the hash of the form of v2 that a client accepts, which needs no rendering. Raises NotAcceptable."""
        return self._v2_hash(_v2_media(accept))

    def is_rendered(self, digest: str) -> bool:
        return digest in self._rendered

    def hash(self, path: str) -> str:
        """Returns the hash of the document of a path; empty if there is none."""
        return self._hashes.get(path, "")

    def _v2_hash(self, media: str) -> str:
        return (
            hashlib.sha256("".join((media, *self._hashes.values(), *(digest for digest, _ in self._others))).encode())
            .hexdigest()
            .upper()
        )

    def _document(self, parts: Iterable[_Part]) -> dict[str, Any]:
        """Returns a v3 document of the kinds of these parts."""
        return {
            "openapi": "3.0.0",
            "info": {"title": "podwire", "version": f"v{VERSION}"},
            **self._content(parts, v2=False),
        }

    def _content(self, parts: Iterable[_Part], *, v2: bool) -> dict[str, Any]:
        names = list(_ALWAYS)
        custom: dict[str, Any] = {}
        all_paths: dict[str, Any] = {}

        def schema_of(group: str, version: str, kind: str) -> str | None:
            definition = self._definitions.name_of(group, version, kind)
            if definition:
                names.extend((definition, f"{definition}List"))
                return definition
            name = custom_name(group, version, kind)
            return name if name in custom else None

        for part in parts:
            for kind, schema in part.custom:
                custom |= self._custom.of(kind, schema, v2=v2)
            for kind in part.builtin:
                all_paths |= paths(kind, schema_of)
            for kind, _ in part.custom:
                all_paths |= paths(kind, schema_of, custom=True)
        return {"paths": all_paths, "components": {"schemas": {**components(self._definitions, names), **custom}}}


def other_part(body: bytes, prefix: str) -> tuple[str, dict[str, Any]]:
    """Returns the hash and the part below a prefix of another server's v2 document. Raises ValueError."""
    try:
        part = merging.part_of(msgspec.json.decode(body), prefix)
        gnostic.encode(part)
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"not an OpenAPI v2 document: {error}") from error
    return hashlib.sha256(msgspec.json.encode(part)).hexdigest().upper(), part


def _path(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def _v2_media(accept: str) -> str:
    for clause in clauses(accept):
        if clause.media in (_V2_ASKED, _V2_PROTOBUF):
            return _V2_PROTOBUF
        if clause.takes(_JSON):
            return _JSON
    raise ApiError(Reason.NOT_ACCEPTABLE, f"only the following media types are accepted: {_JSON}, {_V2_ASKED}")
