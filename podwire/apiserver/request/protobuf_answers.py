"""Answers in protobuf, for clients that accept nothing else: what was rendered as JSON, written in the other form."""

from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec

from podwire.protocols.k8sapi import protobuf_writer
from podwire.protocols.k8sapi.protobuf_writer import MEDIA, STREAMED, NoMessage
from podwire.protocols.k8sapi.server_side import Answer, Response, Stream

JSON = "application/json"


async def as_protobuf(answer: Answer) -> Answer:
    """Returns an answer in protobuf; one that has no such form as it is."""
    if isinstance(answer, Stream) and answer.content_type == JSON:
        if not answer.whole:
            return replace(answer, chunks=_frames(answer.chunks), content_type=STREAMED)
        body = b"".join([chunk async for chunk in answer.chunks])
        answer = Response(status=answer.status, body=body, headers=answer.headers)
    if not isinstance(answer, Response) or answer.content_type != JSON or not answer.body:
        return answer
    try:
        body = protobuf_writer.encode(msgspec.json.decode(answer.body))
    except (NoMessage, AttributeError):
        return answer
    return Response(status=answer.status, body=body, content_type=MEDIA, headers=answer.headers)


async def _frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            yield b"".join(protobuf_writer.encode_event(msgspec.json.decode(line)) for line in chunk.splitlines())
    finally:
        if (close := getattr(chunks, "aclose", None)) is not None:
            await close()
