"""Client and server side of ttrpc, without I/O: frames in, events out.

`Asking` numbers calls and knows which answers are awaited. `Answering` knows which requests may be answered, and has
the refusals ready for the others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from podwire.protocols.grpc_status import (
    InvalidArgument,
    ResourceExhausted,
    RpcError,
    Unimplemented,
    details,
    from_code,
)
from podwire.protocols.ttrpc import ttrpc_pb2 as pb
from podwire.protocols.ttrpc.wire import (
    DATA,
    MAX_DATA,
    MAX_STREAM,
    REMOTE_CLOSED,
    REMOTE_OPEN,
    REQUEST,
    RESPONSE,
    Frame,
    encode,
)

LONGEST = 9e9
"""Seconds that a call may say it waits: what its field can hold, some 285 years."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that is to be answered."""

    stream: int
    service: str
    method: str
    payload: bytes
    timeout: float | None
    """Seconds that the caller waits, below zero when it stopped before it asked; None when it does not say."""
    metadata: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refused:
    """A frame that is answered with an error, and nothing else happens."""

    stream: int
    error: RpcError


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of a call."""

    stream: int
    payload: bytes
    error: RpcError | None = None


@dataclass(frozen=True, slots=True)
class Ignored:
    """A frame that means nothing here; the reason is for the log."""

    why: str


class Asking:
    """The client side: stream ids are odd and increase."""

    def __init__(self) -> None:
        self._next = 1
        self._awaited: set[int] = set()

    def request(
        self,
        service: str,
        method: str,
        payload: bytes,
        *,
        timeout: float | None = None,
        metadata: Iterable[tuple[str, str]] = (),
    ) -> tuple[int, bytes]:
        """A call's number and its frame, which must be sent before another is asked for.

        Raises ResourceExhausted when it is too long or no number is left: then nothing happened.
        """
        message = pb.Request(service=service, method=method, payload=payload)
        if timeout is not None:
            message.timeout_nano = max(1, int(min(timeout, LONGEST) * 1e9))
        message.metadata.extend(pb.KeyValue(key=key.lower(), value=value) for key, value in metadata)
        data = message.SerializeToString()
        if len(data) > MAX_DATA:
            raise TooLong(len(data))
        stream = self._next
        if stream > MAX_STREAM:
            raise ResourceExhausted("this connection has no stream left; only a new one has")
        frame = encode(stream, REQUEST, data)
        self._next += 2
        self._awaited.add(stream)
        return stream, frame

    def forget(self, stream: int) -> None:
        """Forgets a call; a late response is ignored."""
        self._awaited.discard(stream)

    def receive(self, frame: Frame) -> Answered | Ignored:
        if frame.stream not in self._awaited:
            return Ignored(f"an answer on stream {frame.stream}, which has no pending call")
        if frame.kind == DATA:
            return Ignored(f"data on stream {frame.stream}, which is not a data stream")
        if frame.kind != RESPONSE:
            return Ignored(f"a frame of kind {frame.kind} on stream {frame.stream}")
        self._awaited.discard(frame.stream)
        if frame.oversize:
            return Answered(frame.stream, b"", ResourceExhausted(_too_long(frame.oversize)))
        try:
            message = pb.Response.FromString(frame.data)
        except DecodeError:
            return Answered(frame.stream, b"", InvalidArgument("the response is not a ttrpc Response"))
        code = message.status.code
        error = from_code(code, message.status.message) if code else None
        return Answered(frame.stream, message.payload, error)


class Answering:
    """The server side: one response per request, and no stream id twice."""

    def __init__(self) -> None:
        self._last = 0

    def receive(self, frame: Frame) -> Asked | Refused | Ignored:
        if frame.kind == REQUEST:
            return self._request(frame)
        if frame.kind == DATA:
            return Refused(frame.stream, InvalidArgument(f"stream {frame.stream} is not open"))
        return Ignored(f"a frame of kind {frame.kind} on stream {frame.stream}")

    def _request(self, frame: Frame) -> Asked | Refused:
        stream = frame.stream
        if stream % 2 == 0:
            return Refused(stream, InvalidArgument(f"stream {stream}: a caller's streams are odd"))
        if stream <= self._last:
            return Refused(stream, InvalidArgument(f"stream {stream}: streams rise, and {self._last} was used"))
        self._last = stream
        if frame.oversize:
            return Refused(stream, ResourceExhausted(_too_long(frame.oversize)))
        if frame.flags & (REMOTE_OPEN | REMOTE_CLOSED):
            return Refused(stream, Unimplemented("streams: only a request and its response"))
        try:
            message = pb.Request.FromString(frame.data)
        except DecodeError:
            return Refused(stream, InvalidArgument("the frame holds no ttrpc Request"))
        return _asked(stream, message)


def answer(stream: int, payload: bytes) -> bytes:
    """The frame of a call that went well; of one whose answer is too long, the frame that says so."""
    data = pb.Response(payload=payload).SerializeToString()
    if len(data) > MAX_DATA:
        return refuse(stream, ResourceExhausted(_too_long(len(data))))
    return encode(stream, RESPONSE, data)


def refuse(stream: int, error: RpcError) -> bytes:
    """The frame of a call that failed."""
    status = pb.Status(code=error.code, message=details(error))
    return encode(stream, RESPONSE, pb.Response(status=status).SerializeToString())


class TooLong(ResourceExhausted):
    """A message that no frame can hold; `size` is what it came to."""

    def __init__(self, size: int) -> None:
        super().__init__(_too_long(size))
        self.size = size


def _too_long(size: int) -> str:
    return f"a message of {size} bytes, and a frame holds {MAX_DATA}"


def _asked(stream: int, message: pb.Request) -> Asked:
    metadata: dict[str, tuple[str, ...]] = {}
    for pair in message.metadata:
        key = pair.key.lower()
        metadata[key] = (*metadata.get(key, ()), pair.value)
    timeout = message.timeout_nano / 1e9 if message.timeout_nano else None
    return Asked(stream, message.service, message.method, message.payload, timeout, metadata)
