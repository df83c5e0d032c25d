"""Answers in protobuf and CBOR: what is rendered as JSON, written in the other form.

The items of a list are written one by one, with other tasks in between, and large ones by the worker (`offload`). Those
in protobuf are kept: informers list the same objects again and again, and writing one takes longer than all else that a
list does for it.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial

import msgspec

from podwire.apiserver.request import offload
from podwire.apiserver.request.negotiation import Encoding
from podwire.protocols.k8sapi import cbor, protobuf_writer
from podwire.protocols.k8sapi.protobuf_writer import NoMessage
from podwire.protocols.k8sapi.server_side import Answer, Response, Stream
from podwire.protocols.storage import Item
from podwire.tasks.slices import in_slices

JSON = "application/json"
KEPT_BYTES = 16 << 20
"""Of all items in protobuf that are kept: some 5,000 pods."""
CHUNK = 256 * 1024
"""Bytes of a long list that are sent together."""

WATCH_MEDIA = {
    Encoding.JSON: JSON,
    Encoding.PROTOBUF: protobuf_writer.STREAMED,
    Encoding.CBOR: cbor.SEQUENCE,
}
"""The content types of watches."""


class ProtobufItems:
    """Keeps objects as they are within a list in protobuf. The oldest leave first."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._kept: dict[tuple[str, str, str, int], bytes] = {}

    async def find(self, names: "ListNames", item: Item, render: Callable[[Item], bytes]) -> bytes:
        """Returns an item in protobuf; `render` returns it in JSON."""
        key = (names.api_version, names.kind, item.key, item.revision)
        if (kept := self._kept.get(key)) is not None:
            return kept

        def write() -> bytes:
            return protobuf_writer.encode_item(names.api_version, names.kind, msgspec.json.decode(render(item)))

        content = await offload.encode(len(item.value), write)
        if key not in self._kept:  # another list may have written it meanwhile
            self._kept[key] = content
            self._size += len(content)
        while self._size > self._limit:
            oldest = next(iter(self._kept))
            self._size -= len(self._kept.pop(oldest))
        return content


@dataclass(frozen=True, slots=True)
class ListNames:
    """The names in a list: the apiVersion of itself and its items, their kind, its own kind."""

    api_version: str
    kind: str
    list_kind: str


def encode_frame(line: bytes, encoding: Encoding) -> bytes:
    """Returns an event of a watch, a line of JSON, in another encoding."""
    if encoding is Encoding.JSON:
        return line
    event = msgspec.json.decode(line)
    return cbor.encode(event) if encoding is Encoding.CBOR else protobuf_writer.encode_event(event)


async def encode_answer(answer: Answer, encoding: Encoding) -> Answer:
    """Returns a whole answer in JSON in another encoding; one that has no such form as it is."""
    if not isinstance(answer, Response) or answer.content_type != JSON or not answer.body:
        return answer
    return await offload.encode(len(answer.body), lambda: _encoded(answer, encoding))


def _encoded(answer: Response, encoding: Encoding) -> Response:
    value = msgspec.json.decode(answer.body)
    if encoding is Encoding.CBOR:
        return Response(status=answer.status, body=cbor.encode(value), content_type=cbor.MEDIA, headers=answer.headers)
    try:
        body = protobuf_writer.encode(value)
    except (NoMessage, AttributeError):
        return answer
    return Response(status=answer.status, body=body, content_type=protobuf_writer.MEDIA, headers=answer.headers)


async def protobuf_list(
    names: ListNames, metadata: bytes, items: Iterable[Item], render: Callable[[Item], bytes], kept: ProtobufItems
) -> Response | Stream:
    """Returns a list in protobuf. Its length precedes it, so it is written as a whole before it is sent."""
    written = [await kept.find(names, item, render) async for item in in_slices(items)]
    parts = protobuf_writer.encode_list(names.api_version, names.list_kind, msgspec.json.decode(metadata), written)
    if sum(map(len, written)) <= CHUNK:
        return Response(status=200, body=b"".join(parts), content_type=protobuf_writer.MEDIA)
    return Stream(chunks=_chunks(in_slices(parts)), content_type=protobuf_writer.MEDIA, whole=True)


def cbor_list(names: ListNames, metadata: bytes, items: list[Item], render: Callable[[Item], bytes]) -> Stream:
    """Returns a list in CBOR, written while it is sent."""
    head = cbor.list_head(names.list_kind, names.api_version, msgspec.json.decode(metadata), len(items))

    async def parts() -> AsyncIterator[bytes]:
        yield head
        async for item in in_slices(items):
            write = partial(_cbor_item, item, render)
            yield await offload.encode(len(item.value), write)

    return Stream(chunks=_chunks(parts()), content_type=cbor.MEDIA, whole=True)


def _cbor_item(item: Item, render: Callable[[Item], bytes]) -> bytes:
    return cbor.encode_item(msgspec.json.decode(render(item)))


async def _chunks(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    ready: list[bytes] = []
    size = 0
    async for part in parts:
        ready.append(part)
        size += len(part)
        if size >= CHUNK:
            yield b"".join(ready)
            ready, size = [], 0
    if ready:
        yield b"".join(ready)
