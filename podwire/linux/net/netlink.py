"""A netlink socket, which belongs to the network namespace that it was opened in.

Requests are sent together; the kernel processes them in the sender's own system call and answers each by its sequence
number. A request that fails does not stop those after it. An open socket keeps its namespace alive: close it before the
namespace is to end.
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
_SEND_BUFFER, _SNDBUFFORCE = 1 << 16, 32  # bytes that any socket can send; SO_SNDBUFFORCE raises that
_BATCH = 64  # acknowledgements of this many requests fit into any receive buffer
_RECEIVE_SECONDS = 10  # the kernel answers before `send` returns, so a timeout means that something is broken
_DUMP_TRIES = 8


class Refusal:
    """The kernel's error for one request: errno, message, and the offset of the rejected attribute."""

    __slots__ = ("number", "offset", "words")

    def __init__(self, number: int, words: str = "", offset: int | None = None) -> None:
        self.number, self.words, self.offset = number, words, offset


class Netlink:
    """One socket. Threads may share it; exchanges are serialised."""

    def __init__(self, netns: Path | int | None = None, *, protocol: int = ROUTE) -> None:
        """Opens it in the namespace at a path or of a descriptor; None is the calling thread's own."""
        if netns is None:
            self._socket = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol)
        else:
            with visit(netns):
                self._socket = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol)
        self._socket.bind((0, 0))
        for option in (_CAP_ACK, _EXT_ACK, _STRICT):
            with suppress(OSError):  # an older kernel: errors have no message, dumps are not filtered
                self._socket.setsockopt(_SOL_NETLINK, option, 1)
        self._socket.setsockopt(SOL_SOCKET, SO_RCVTIMEO, pack("@ll", _RECEIVE_SECONDS, 0))
        self._socket.setsockopt(SOL_SOCKET, SO_RCVBUF, 1 << 20)
        self._lock = Lock()
        self._seq = 0
        self._send_buffer = _SEND_BUFFER
        self._step = _STEPS.get(protocol, "netlink")

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def do(self, *requests: Request) -> None:
        """Sends requests and waits for all answers; raises the first error, with the others as its notes."""
        failures: list[errors.LinuxError] = []
        try:
            for start in range(0, len(requests), _BATCH):
                batch = requests[start : start + _BATCH]
                messages = [(request.kind, request.flags | REQUEST | ACK, request.body) for request in batch]
                answers = zip(batch, self.exchange(messages), strict=True)
                failures += [_error(request, refusal) for request, refusal in answers if refusal is not None]
        finally:
            release(requests)
        if failures:
            for other in failures[1:]:
                failures[0].add_note(f"also: {other}")
            raise failures[0]

    def exchange(self, messages: Sequence[tuple[int, int, bytes]]) -> list[Refusal | None]:
        """Sends (kind, flags, body) messages as one datagram; returns the answer to each that requests one."""
        with step(self._step), self._lock:
            first = self._seq + 1
            self._seq += len(messages)
            packets = b"".join(_packet(seq, *message) for seq, message in enumerate(messages, first))
            waiting = {seq for seq, (_, flags, _) in enumerate(messages, first) if flags & ACK}
            answers: list[Refusal | None] = [None] * len(messages)
            if len(packets) > self._send_buffer:  # a transaction must fit into the socket's buffer as a whole
                self._socket.setsockopt(SOL_SOCKET, _SNDBUFFORCE, 2 * len(packets))
                self._send_buffer = len(packets)
            self._socket.send(packets)
            while waiting:
                for kind, flags, seq, body in self._receive():
                    if kind == _ERROR and first <= seq <= self._seq:
                        answers[seq - first] = _refusal(kind, flags, body)
                        waiting.discard(seq)
            return answers

    def ask(self, request: Request) -> bytes:
        """Sends a request that has one answer; returns its body."""
        try:
            with step(self._step), self._lock:
                self._seq += 1
                self._socket.send(_packet(self._seq, request.kind, request.flags | REQUEST, request.body))
                while True:
                    for kind, flags, seq, body in self._receive():
                        if seq == self._seq:
                            if kind != _ERROR:
                                return body
                            raise _error(request, _refusal(kind, flags, body) or Refusal(errno.ENODATA))
        finally:
            release((request,))

    def dump(self, request: Request) -> list[bytes]:
        """Returns the bodies of all answers; reads again if something changed meanwhile, and finally raises Busy."""
        for _ in range(_DUMP_TRIES):
            with step(self._step), self._lock:
                bodies, whole = self._dump(request)
            if whole:
                return bodies
        raise errors.Busy(errno.EAGAIN, request.operation, "it changed during each of several reads")

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
                    raise _error(request, refusal)
                return bodies, whole

    def _receive(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Receives one datagram; yields kind, flags, seq and body of each message."""
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
    """Collects requests to send them together; has the methods of a Netlink."""

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
        """Sends the requests; `ask` and `dump` do so first, so that they see the changes."""
        self._netlink.do(*self.take())

    def take(self) -> list[Request]:
        """Returns the requests, which are then no longer the batch's."""
        requests, self._requests = self._requests, []
        return requests


Sender = Netlink | Batch


def release(requests: Sequence[Request]) -> None:
    """Closes the descriptors that requests hold."""
    for request in requests:
        for held in request.held:
            os.close(held)


def _packet(seq: int, kind: int, flags: int, body: bytes) -> bytes:
    length = 16 + len(body)
    return HEADER.pack(length, kind, flags, seq, 0) + body + b"\0" * (-length & 3)


def _error(request: Request, refusal: Refusal) -> errors.LinuxError:
    return errors.from_errno(refusal.number, request.operation, refusal.words, request.errors)


def _refusal(kind: int, flags: int, body: bytes) -> Refusal | None:
    """Parses an acknowledgement, or the end of a dump; None means success."""
    number = -int.from_bytes(body[:4], byteorder, signed=True)
    if number <= 0:
        return None
    if not flags & _TLVS:
        return Refusal(number)
    # An error repeats the request, or at least its header, before its attributes.
    repeated = 0 if kind == _DONE else 16 if flags & _CAPPED else int.from_bytes(body[4:8], byteorder)
    attrs = wire.attributes(body, 4 + ((repeated + 3) & ~3))
    offset = wire.number(attrs[_ACK_OFFSET]) if _ACK_OFFSET in attrs else None
    return Refusal(number, wire.string(attrs.get(_ACK_MESSAGE, b"")), offset)
