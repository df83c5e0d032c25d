"""etcd client over gRPC: endpoint selection, deadlines, and the meaning of errors.

A call goes to a connected endpoint, and waits for one when none is connected. A read without an answer is retried
elsewhere. A write is sent once, and no answer means StoreUnavailable: it may or may not have happened.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import grpc
from google.protobuf.message import Message

from podwire.protocols.storage import StorageError, StoreFull, StoreUnavailable
from podwire.store.errors import CannotOpen
from podwire.store.etcd import etcd_pb2 as pb
from podwire.store.etcd.address import Address

Answer = TypeVar("Answer", bound=Message)
_Stream = grpc.aio.StreamStreamCall[Message, pb.WatchResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds: one call; the keepalive of an open watch (etcd refuses less than 5)."""

    call: float = 5.0
    keepalive: float = 10.0
    chunk: int = 5000
    """Keys per call of a list; longer ones take several calls, all at the revision of the first."""
    oldest: tuple[int, int] = (3, 4)
    """The oldest version of etcd that is accepted."""


@dataclass(frozen=True, slots=True)
class Method(Generic[Answer]):
    """A unary method of etcd's API; `again` says that it is idempotent."""

    path: str
    answer: type[Answer]
    again: bool


CONNECT_POLL_SECONDS = 0.01

NEEDS_LEADER = (("hasleader", "true"),)
"""Asks a member to end a watch when it loses its leader, instead of keeping it open without events."""

RANGE = Method("/etcdserverpb.KV/Range", pb.RangeResponse, again=True)
TXN = Method("/etcdserverpb.KV/Txn", pb.TxnResponse, again=False)
COMPACT = Method("/etcdserverpb.KV/Compact", pb.CompactionResponse, again=True)
STATUS = Method("/etcdserverpb.Maintenance/Status", pb.StatusResponse, again=True)
WATCH = "/etcdserverpb.Watch/Watch"
_METHODS: tuple[Method[Any], ...] = (RANGE, TXN, COMPACT, STATUS)


class Compacted(StorageError):
    """The revision asked for is compacted."""


class Future(StorageError):
    """The revision asked for has not happened."""


_MEANINGS: dict[str, type[StorageError]] = {
    "etcdserver: mvcc: required revision has been compacted": Compacted,
    "etcdserver: mvcc: required revision is a future revision": Future,
    "etcdserver: mvcc: database space exceeded": StoreFull,
    "etcdserver: no space": StoreFull,
}
"""etcd distinguishes errors by these texts; gRPC codes are too few. All of them mean that nothing was written."""

_FULL = (
    "{} (etcd is over its quota and has raised the NOSPACE alarm: it accepts deletions; to accept more, it needs a "
    "compaction, `etcdctl defrag` and `etcdctl alarm disarm`, or a larger --quota-backend-bytes)"
)

_NO_ANSWER = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})


class _Endpoint:
    """One member of the cluster, with its prepared calls."""

    def __init__(self, name: str, channel: grpc.aio.Channel) -> None:
        self.name = name
        self.channel = channel
        self.client = {
            method.path: channel.unary_unary(
                method.path,
                request_serializer=_serialize,
                response_deserializer=method.answer.FromString,
            )
            for method in _METHODS
        }
        self.watch = channel.stream_stream(
            WATCH, request_serializer=_serialize, response_deserializer=pb.WatchResponse.FromString
        )

    @property
    def connected(self) -> bool:
        """Returns whether the channel is connected; starts connecting when it is not."""
        return self.channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY


class EtcdClient:
    """The calls of a store, on any working endpoint."""

    def __init__(self, address: Address, limits: Limits) -> None:
        """Connects lazily; raises CannotOpen when the TLS files cannot be read."""
        self._limits = limits
        connect = _connector(address, limits)
        self._endpoints = [_Endpoint(endpoint, connect(endpoint)) for endpoint in address.endpoints]

    async def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        return await self._call(RANGE, request)

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        return await self._call(TXN, request)

    async def compact(self, request: pb.CompactionRequest) -> pb.CompactionResponse:
        return await self._call(COMPACT, request)

    async def status(self) -> pb.StatusResponse:
        return await self._call(STATUS, pb.StatusRequest())

    async def watch(self, request: pb.WatchCreateRequest) -> "WatchStream":
        """Opens a stream with one watch."""
        endpoint = await self._endpoint()
        return WatchStream(endpoint.watch(metadata=NEEDS_LEADER), request, partial(self._translate_error, endpoint))

    async def close(self) -> None:
        for endpoint in self._endpoints:
            await endpoint.channel.close()

    async def _call(self, method: Method[Answer], request: Message) -> Answer:
        attempts = len(self._endpoints) + 1 if method.again else 1
        while True:
            endpoint = await self._endpoint()
            attempts -= 1
            try:
                answer = await endpoint.client[method.path](request, timeout=self._limits.call)
            except grpc.aio.AioRpcError as error:
                failed = self._translate_error(endpoint, error)
                if attempts == 0 or not isinstance(failed, StoreUnavailable):
                    raise failed from error
            else:
                return cast("Answer", answer)

    async def _endpoint(self) -> _Endpoint:
        """Returns the first connected endpoint; waits until one of them connects.

        Polls, because gRPC's own wait cannot be cancelled without leaking an operation.
        """
        waited = 0.0
        while True:
            for endpoint in self._endpoints:
                if endpoint.connected:
                    return endpoint
            if waited >= self._limits.call:
                names = ", ".join(endpoint.name for endpoint in self._endpoints)
                raise StoreUnavailable(f"etcd at {names}: no connection within {self._limits.call:g} s")
            await asyncio.sleep(CONNECT_POLL_SECONDS)
            waited += CONNECT_POLL_SECONDS

    def _translate_error(self, endpoint: _Endpoint, error: Exception) -> StorageError:
        """Translates an error; an endpoint that did not answer moves to the end of the list."""
        if not isinstance(error, grpc.aio.AioRpcError):
            return StoreUnavailable(f"etcd at {endpoint.name}: {error!r}")
        details = error.details() or ""
        if meaning := _MEANINGS.get(details):
            return meaning(_FULL.format(details) if meaning is StoreFull else details)
        if error.code() in _NO_ANSWER and self._endpoints[0] is endpoint:
            self._endpoints.append(self._endpoints.pop(0))
        return StoreUnavailable(f"etcd at {endpoint.name}: {error.code().name}: {details}")


class WatchStream:
    """One stream of etcd's Watch call."""

    def __init__(
        self, stream: _Stream, request: pb.WatchCreateRequest, failed: Callable[[Exception], StorageError]
    ) -> None:
        self._stream = stream
        self._request: pb.WatchCreateRequest | None = request
        self._translate_error = failed

    async def read(self) -> pb.WatchResponse:
        """Returns the next response; raises StoreUnavailable when the stream ends."""
        try:
            if self._request is not None:
                await self._stream.write(pb.WatchRequest(create_request=self._request))
                self._request = None
            response = await self._stream.read()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise self._translate_error(error) from error
        if not isinstance(response, pb.WatchResponse):
            raise StoreUnavailable("etcd ended the watch")
        return response

    def cancel(self) -> None:
        self._stream.cancel()


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _connector(address: Address, limits: Limits) -> Callable[[str], grpc.aio.Channel]:
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", int(limits.keepalive * 1000)),
        ("grpc.keepalive_timeout_ms", int(limits.keepalive * 500)),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]
    if address.ca is None:
        # etcd's Go side refuses some forms of the authority that gRPC derives from an address.
        plain = [*options, ("grpc.default_authority", "localhost")]
        return lambda endpoint: grpc.aio.insecure_channel(endpoint, options=plain)
    credentials = grpc.ssl_channel_credentials(
        _read(address.ca), _read(address.key) if address.key else None, _read(address.cert) if address.cert else None
    )
    return lambda endpoint: grpc.aio.secure_channel(endpoint, credentials, options=options)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CannotOpen(f"{path}: {error.strerror}") from error
