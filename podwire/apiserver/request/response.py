"""Renders answers in the negotiated form: object, Table or metadata; single, listed or watched."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from podwire.apiserver.request.encodings import ListNames, ProtobufItems, cbor_list, protobuf_list
from podwire.apiserver.request.negotiation import Encoding, Form, Shown
from podwire.kinds import stored
from podwire.kinds.resource import Resource
from podwire.protocols.k8sapi.server_side import Request, Response, Stream
from podwire.protocols.k8sapi.status import ApiError, bad_request
from podwire.protocols.storage import Item
from podwire.tasks.slices import in_slices

GO_TRUE = ("1", "t", "T", "true", "TRUE", "True")
INCLUDE = ("None", "Metadata", "Object")
WARNINGS_LENGTH, WARNING_LENGTH = 4096, 256
"""Characters of all warnings together, and of each one when these are exceeded; upstream's numbers."""

CHUNK = 256 * 1024
"""Bytes of a list that are sent together."""

STREAM_ITEMS, STREAM_BYTES = 100, 2 << 20
"""Lists of more than so many items, and bytes as stored, are sent in chunks."""


@dataclass(frozen=True, slots=True)
class ListMeta:
    """The metadata of a list."""

    revision: int
    continue_token: str = ""
    remaining: int = 0
    shard: str = ""
    """The shard selector of a list that is a part of its collection."""

    def encode(self) -> bytes:
        meta: dict[str, Any] = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            meta["continue"] = self.continue_token
        if self.remaining:
            meta["remainingItemCount"] = self.remaining
        if self.shard:
            meta["shardInfo"] = {"selector": self.shard}
        return stored.encode(meta)


class Renderer:
    """Renders the objects of one resource for one request, in JSON."""

    def __init__(self, resource: Resource, form: Form, request: Request, now: float) -> None:
        self._resource = resource
        self.form = form
        self._now = now
        self._include = _include(request) if form.shown is Shown.TABLE else ""
        self.one: Callable[[Item], bytes] = {
            Shown.OBJECT: resource.serve,
            Shown.TABLE: self._single_table,
            Shown.METADATA: self._partial,
        }[form.shown]

    def many(self, items: Sequence[Item], meta: ListMeta) -> bytes:
        """Renders a list."""
        head, render, tail = self.list_parts(meta)
        if not items:
            return head + tail
        rendered = [render(item) for item in items]
        rendered[0] = head + rendered[0]
        rendered[-1] += tail  # the whole is copied once
        return b",".join(rendered)

    async def streamed(self, items: list[Item], meta: ListMeta) -> AsyncIterator[bytes]:
        """Renders a list in chunks, so that it is never in memory as a whole, and other tasks run in between.

        Takes the items away as they are rendered: an object that changes meanwhile is not kept for the slow reader.
        """
        head, render, tail = self.list_parts(meta)
        ready, size = [head], 0
        items.reverse()
        async for rendered in in_slices(render(items.pop()) for _ in range(len(items))):
            ready.append(rendered)
            ready.append(b",")
            size += len(rendered)
            if size >= CHUNK and items:
                yield b"".join(ready)
                ready, size = [], 0
                await asyncio.sleep(0)
        if ready[-1] == b",":
            ready.pop()
        yield b"".join([*ready, tail])

    def list_parts(self, meta: ListMeta) -> tuple[bytes, Callable[[Item], bytes], bytes]:
        """Returns the beginning of a list, the function that renders each item, and the end."""
        if self.form.shown is Shown.TABLE:
            return self._table_head(meta.encode(), columns=True), self._row, b"]}"
        names = self.names
        head = b'{"kind":"%b","apiVersion":"%b"' % (names.list_kind.encode(), names.api_version.encode())
        return b'%b,"metadata":%b,"items":[' % (head, meta.encode()), self.one, b"]}"

    @property
    def names(self) -> ListNames:
        """The names in a list of objects or of their metadata."""
        if self.form.shown is Shown.METADATA:
            partial = "PartialObjectMetadata"
            return ListNames(f"meta.k8s.io/{self.form.version}", partial, f"{partial}List")
        kind = self._resource.kind
        return ListNames(kind.api_version, kind.kind, kind.list_kind)

    def table(self, items: Iterable[Item], meta: bytes, *, columns: bool = True) -> bytes:
        """Renders a Table; within a watch only the first one has columns."""
        return b"%b%b]}" % (self._table_head(meta, columns=columns), b",".join(map(self._row, items)))

    def _table_head(self, meta: bytes, *, columns: bool) -> bytes:
        definitions = stored.encode(self._resource.columns()) if columns else b"null"
        head = b'{"kind":"Table","apiVersion":"meta.k8s.io/%b"' % self.form.version.encode()
        return b'%b,"metadata":%b,"columnDefinitions":%b,"rows":[' % (head, meta, definitions)

    def _single_table(self, item: Item) -> bytes:
        return self.table([item], stored.encode({"resourceVersion": str(item.revision)}))

    def _row(self, item: Item) -> bytes:
        cells = stored.encode(self._resource.cells(self._resource.unpack(item), self._now))
        if self._include == "None":
            return b'{"cells":%b}' % cells
        shown = self._resource.serve(item) if self._include == "Object" else self._partial(item)
        return b'{"cells":%b,"object":%b}' % (cells, shown)

    def _partial(self, item: Item) -> bytes:
        head = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%b"' % self.form.version.encode()
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
    if not warnings:
        return Response(status=status, body=body)
    headers = tuple(("Warning", warning(text)) for text in truncate_warnings(warnings))
    return Response(status=status, body=body, headers=headers)


def truncate_warnings(warnings: Sequence[str]) -> list[str]:
    """Returns the warnings of an answer: all of them, or truncated ones when there are too many."""
    distinct = list(dict.fromkeys(warnings))
    if sum(map(len, distinct)) <= WARNINGS_LENGTH:
        return distinct
    short: dict[str, None] = {}
    for text in distinct:
        if sum(map(len, short)) >= WARNINGS_LENGTH:
            break
        short[text[:WARNING_LENGTH]] = None
    return list(short)


def warning(text: str) -> str:
    """Formats a Warning header (RFC 7234): quoted, one line, printable."""
    plain = "".join(character if character.isprintable() and character.isascii() else "?" for character in text)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


async def list_answer(
    request: Request, renderer: Renderer, items: list[Item], meta: ListMeta, kept: ProtobufItems
) -> Response | Stream:
    """Returns a list: whole, or in chunks if it is long. An indented one is whole."""
    encoding = renderer.form.encoding
    if encoding is not Encoding.JSON and renderer.form.shown is not Shown.TABLE:
        if encoding is Encoding.PROTOBUF:
            return await protobuf_list(renderer.names, meta.encode(), items, renderer.one, kept)
        return cbor_list(renderer.names, meta.encode(), items, renderer.one)
    long = len(items) > STREAM_ITEMS and sum(len(item.value) for item in items) > STREAM_BYTES
    if not long or request.option("pretty") in GO_TRUE:
        return answer(request, renderer.many(items, meta))
    return Stream(chunks=renderer.streamed(items, meta), whole=True)


def error_response(error: ApiError) -> Response:
    """Returns an error as a Status."""
    return Response(status=error.code, body=stored.encode(error.status()), headers=error.headers)
