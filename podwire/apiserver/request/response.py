"""Renders answers in the negotiated form: object, Table or metadata; single, listed or watched."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from podwire.apiserver.request.negotiation import Form, Shown
from podwire.kinds import stored
from podwire.kinds.resource import Resource
from podwire.protocols.k8sapi.server_side import Request, Response
from podwire.protocols.k8sapi.status import ApiError, bad_request
from podwire.protocols.storage import Item

GO_TRUE = ("1", "t", "T", "true", "TRUE", "True")
INCLUDE = ("None", "Metadata", "Object")
WARNINGS_LENGTH, WARNING_LENGTH = 4096, 256
"""Characters of all warnings together, and of each one when these are exceeded; upstream's numbers."""


@dataclass(frozen=True, slots=True)
class ListMeta:
    """The metadata of a list."""

    revision: int
    continue_token: str = ""
    remaining: int = 0

    def encode(self) -> bytes:
        meta: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            meta["continue"] = self.continue_token
        if self.remaining:
            meta["remainingItemCount"] = self.remaining
        return stored.encode(meta)


class Renderer:
    """Renders the objects of one resource for one request."""

    def __init__(self, resource: Resource, form: Form, request: Request, now: float) -> None:
        self._resource = resource
        self._form = form
        self._now = now
        self._include = _include(request) if form.shown is Shown.TABLE else ""
        self.one: Callable[[Item], bytes] = {
            Shown.OBJECT: resource.serve,
            Shown.TABLE: self._single_table,
            Shown.METADATA: self._partial,
        }[form.shown]

    def many(self, items: Sequence[Item], meta: ListMeta) -> bytes:
        """Renders a list."""
        if self._form.shown is Shown.TABLE:
            return self.table(items, meta.encode())
        if self._form.shown is Shown.METADATA:
            head = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/%b"' % self._form.version.encode()
            each: Iterable[bytes] = map(self._partial, items)
        else:
            kind = self._resource.kind
            head = b'{"kind":"%b","apiVersion":"%b"' % (kind.list_kind.encode(), kind.api_version.encode())
            each = map(self._resource.serve, items)
        return b'%b,"metadata":%b,"items":[%b]}' % (head, meta.encode(), b",".join(each))

    def table(self, items: Iterable[Item], meta: bytes, *, columns: bool = True) -> bytes:
        """Renders a Table; within a watch only the first one has columns."""
        rows = b",".join(map(self._row, items))
        definitions = stored.encode(self._resource.columns()) if columns else b"null"
        head = b'{"kind":"Table","apiVersion":"meta.k8s.io/%b"' % self._form.version.encode()
        return b'%b,"metadata":%b,"columnDefinitions":%b,"rows":[%b]}' % (head, meta, definitions, rows)

    def _single_table(self, item: Item) -> bytes:
        return self.table([item], stored.encode({"resourceVersion": str(item.revision)}))

    def _row(self, item: Item) -> bytes:
        cells = stored.encode(self._resource.cells(self._resource.unpack(item), self._now))
        if self._include == "None":
            return b'{"cells":%b}' % cells
        shown = self._resource.serve(item) if self._include == "Object" else self._partial(item)
        return b'{"cells":%b,"object":%b}' % (cells, shown)

    def _partial(self, item: Item) -> bytes:
        head = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%b"' % self._form.version.encode()
        return b'%b,"metadata":%b}' % (head, stored.metadata_bytes(item.value, item.revision))


def _include(request: Request) -> str:
    include = request.option("includeObject", "Metadata") or "Metadata"
    if include not in INCLUDE:
        raise bad_request(f'unrecognized includeObject value: "{include}"')
    return include


def answer(request: Request, body: bytes, *, status: int = 200, warnings: Sequence[str] = ()) -> Response:
    """Returns a JSON answer, indented if the client asks for that."""
    if request.query and request.option("pretty") in GO_TRUE:
        body = msgspec.json.format(body, indent=2) + b"\n"
    return Response(
        status=status,
        body=body,
        headers=tuple(("Warning", warning(text)) for text in truncate_warnings(warnings)),
    )


def truncate_warnings(warnings: Sequence[str]) -> list[str]:
    """Returns the warnings of an answer: all of them, or truncated ones when there are too many."""
    distinct = list(dict.fromkeys(warnings))
    if sum(map(len, distinct)) <= WARNINGS_LENGTH:
        return distinct
    short = [text[:WARNING_LENGTH] for text in distinct[: WARNINGS_LENGTH // WARNING_LENGTH]]
    return list(dict.fromkeys(short))


def warning(text: str) -> str:
    """Formats a Warning header (RFC 7234): quoted, one line, printable."""
    plain = "".join(character if character.isprintable() and character.isascii() else "?" for character in text)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


def error_response(error: ApiError) -> Response:
    """Returns an error as a Status."""
    return Response(status=error.code, body=stored.encode(error.status()), headers=error.headers)
