"""A netlink socket that belongs to one network namespace for life.

Requests go out together, as many as there are; the kernel works them off in the sender's own system call and answers
each by its sequence number. A request that fails does not stop those after it. An open socket keeps its namespace
alive: close it when the namespace is to go.
"""

import errno
import os
from _socket import AF_NETLINK, SO_RCVBUF, SO_RCVTIMEO, SOCK_CLOEXEC, SOCK_RAW, SOL_SOCKET, socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from struct import pack
from sys import byteorder
from threading import Lock
from types import TracebackType
from typing import Self

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.wire import ACK, DUMP, HEADER, REQUEST, Request
from podwire.linux.proc.namespaces import visit
from podwire.linux.proc.stopwatch import step
from podwire.linux.values import Path

ROUTE, NETFILTER = 0, 12
_STEPS = {ROUTE: "netlink", NETFILTER: "netfilter"}
_SOL_NETLINK, _CAP_ACK, _EXT_ACK, _STRICT = 270, 10, 11, 12
_ERROR, _DONE = 2, 3
_INTERRUPTED, _CAPPED, _TLVS = 0x10, 0x100, 0x200
_ACK_MESSAGE, _ACK_OFFSET = 1, 2
_ROOM, _SEND_BUFFER_FORCED = 1 << 16, 32  # what any socket may send; beyond what the machine gives to anybody
_AT_ONCE = 64  # acknowledgements of this many fit into any receive buffer
_PATIENCE = 10  # seconds; the kernel answers before `send` returns, so waiting at all means that something is broken
_DUMP_TRIES = 8


class Refusal:
    """One request's no: its errno, the kernel's words, and where in the request the trouble lies."""

    __slots__ = ("number", "offset", "words")

    def __init__(self, number: int, words: str = "", offset: int | None = None) -> None:
        self.number, self.words, self.offset = number, words, offset


class Netlink:
    """One socket, used by any thread, one exchange at a time."""

    def __init__(self, netns: Path | int | None = None, *, protocol: int = ROUTE) -> None:
        """Open it in the namespace at a path or behind a descriptor; None is the calling thread's own."""
        if netns is None:
            self._socket = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol)
        else:
            with visit(netns):
                self._socket = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol)
        self._socket.bind((0, 0))
        for option in (_CAP_ACK, _EXT_ACK, _STRICT):
            with suppress(OSError):  # an older kernel: errors have fewer words, dumps are not filtered by the kernel
                self._socket.setsockopt(_SOL_NETLINK, option, 1)
        self._socket.setsockopt(SOL_SOCKET, SO_RCVTIMEO, pack("@ll", _PATIENCE, 0))
        self._socket.setsockopt(SOL_SOCKET, SO_RCVBUF, 1 << 20)
        self._lock = Lock()
        self._seq = 0
        self._room = _ROOM
        self._step = _STEPS.get(protocol, "netlink")

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def do(self, *requests: Request) -> None:
        """Send all and wait for all answers; raises the first error, with the others as its notes."""
        failed: list[errors.LinuxError] = []
        try:
            for start in range(0, len(requests), _AT_ONCE):
                failed += self._do(requests[start : start + _AT_ONCE])
        finally:
            release(requests)
        if failed:
            for other in failed[1:]:
                failed[0].add_note(f"also: {other}")
            raise failed[0]

    def _do(self, requests: Sequence[Request]) -> Iterator[errors.LinuxError]:
        framed = [(each.kind, each.flags | REQUEST | ACK, each.body) for each in requests]
        for request, refusal in zip(requests, self.exchange(framed), strict=True):
            if refusal is not None:
                yield errors.from_errno(refusal.number, request.operation, refusal.words, request.errors)

    def exchange(self, framed: Sequence[tuple[int, int, bytes]]) -> list[Refusal | None]:
        """Send (kind, flags, body) messages as one; what became of each that asked for an acknowledgement."""
        with step(self._step), self._lock:
            first = self._seq + 1
            self._seq += len(framed)
            numbered = enumerate(framed, first)
            packets = [_packet(seq, kind, flags, body) for seq, (kind, flags, body) in numbered]
            waiting = {first + i for i, (_, flags, _) in enumerate(framed) if flags & ACK}
            answers: list[Refusal | None] = [None] * len(framed)
            together = b"".join(packets)
            self._make_room(len(together))
            self._socket.send(together)
            while waiting:
                for kind, flags, seq, body in self._receive():
                    if kind == _ERROR and first <= seq <= self._seq:
                        answers[seq - first] = _refusal(kind, flags, body)
                        waiting.discard(seq)
            return answers

    def _make_room(self, size: int) -> None:
        """What goes out together, as a transaction does, must fit into the socket's buffer whole."""
        if size > self._room:
            self._socket.setsockopt(SOL_SOCKET, _SEND_BUFFER_FORCED, 2 * size)
            self._room = size

    def ask(self, request: Request) -> bytes:
        """The body of the one message that answers."""
        try:
            with step(self._step), self._lock:
                self._seq += 1
                self._socket.send(_packet(self._seq, request.kind, request.flags | REQUEST, request.body))
                while True:
                    for kind, flags, seq, body in self._receive():
                        if seq == self._seq:
                            if kind != _ERROR:
                                return body
                            raise _named(request, _refusal(kind, flags, body) or Refusal(errno.ENODATA))
        finally:
            release((request,))

    def dump(self, request: Request) -> list[bytes]:
        """The bodies of all messages that answer, read again when something changed meanwhile. Busy if always."""
        for _ in range(_DUMP_TRIES):
            with step(self._step), self._lock:
                bodies, whole = self._dump(request)
            if whole:
                return bodies
        raise errors.Busy(errno.EAGAIN, request.operation, "it changes all the time")

    def _dump(self, request: Request) -> tuple[list[bytes], bool]:
        self._seq += 1
        self._socket.send(_packet(self._seq, request.kind, request.flags | REQUEST | DUMP, request.body))
        bodies: list[bytes] = []
        whole = True
        while True:
            for kind, flags, seq, body in self._receive():
                if seq != self._seq:
                    continue
                whole = whole and not flags & _INTERRUPTED
                if kind not in (_ERROR, _DONE):
                    bodies.append(body)
                    continue
                refusal = _refusal(kind, flags, body)
                if refusal is not None:
                    raise _named(request, refusal)
                return bodies, whole

    def _receive(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Kind, flags, seq and body of each message of one datagram."""
        try:
            data = self._socket.recv(1 << 17)
        except BlockingIOError as error:
            raise errors.DeadlinePassed(errno.ETIMEDOUT, "wait for the kernel's answer") from error
        except OSError as error:
            raise errors.from_oserror(error, "receive the kernel's answer") from error
        start = 0
        while start + 16 <= len(data):
            length, kind, flags, seq, _ = HEADER.unpack_from(data, start)
            yield kind, flags, seq, data[start + 16 : start + length]
            start += (length + 3) & ~3


class Batch:
    """Requests that wait to be sent together; stands where a Netlink stands."""

    def __init__(self, netlink: Netlink) -> None:
        self._netlink = netlink
        self._requests: list[Request] = []

    def do(self, *requests: Request) -> None:
        self._requests += requests

    def ask(self, request: Request) -> bytes:
        self.send()
        return self._netlink.ask(request)

    def dump(self, request: Request) -> list[bytes]:
        self.send()
        return self._netlink.dump(request)

    def send(self) -> None:
        """Send what waits; asking a question does so too, so that answers are never older than what was told."""
        requests, self._requests = self._requests, []
        self._netlink.do(*requests)

    def drop(self) -> None:
        requests, self._requests = self._requests, []
        release(requests)


Sender = Netlink | Batch


def release(requests: Sequence[Request]) -> None:
    """Close what requests hold open."""
    for request in requests:
        for held in request.held:
            os.close(held)


def _packet(seq: int, kind: int, flags: int, body: bytes) -> bytes:
    length = 16 + len(body)
    return HEADER.pack(length, kind, flags, seq, 0) + body + b"\0" * (-length & 3)


def _named(request: Request, refusal: Refusal) -> errors.LinuxError:
    return errors.from_errno(refusal.number, request.operation, refusal.words, request.errors)


def _refusal(kind: int, flags: int, body: bytes) -> Refusal | None:
    """What an acknowledgement, or the end of a dump, says; None when it says yes."""
    number = -int.from_bytes(body[:4], byteorder, signed=True)
    if number <= 0:
        return None
    if not flags & _TLVS:
        return Refusal(number)
    # An error repeats the request, or its header at least, before it explains itself.
    repeated = 0 if kind == _DONE else 16 if flags & _CAPPED else int.from_bytes(body[4:8], byteorder)
    told = wire.attributes(body, 4 + ((repeated + 3) & ~3))
    offset = wire.number(told[_ACK_OFFSET]) if _ACK_OFFSET in told else None
    return Refusal(number, wire.string(told.get(_ACK_MESSAGE, b"")), offset)
