"""The plugins as a daemon: what their programs are asked is done here, without the start of an interpreter.

A thread takes one call after the other. It goes where the caller is, into its network namespace and its working
directory, does what the program would do, and comes back. Who has other mounts than ours would mean other files by the
same paths: that one is told to do it by itself.

Stopping: 1. no new calls are taken, their programs do without us.  2. Those that have arrived are done, also if nobody
has taken them yet; who is still talking is hung up on.  3. Threads end with what they are at. A call that takes longer
than the grace is left where it is, as by a daemon that is killed: its program says so, and DEL gives back.
"""

import errno
import logging
import os
import select
import socket
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from struct import Struct, pack
from threading import Thread
from time import monotonic, sleep
from typing import NamedTuple

from podwire.cniplugins.daemon.server import wire
from podwire.cniplugins.netfilter import Netfilter
from podwire.cniplugins.skeleton import PLUGINS, Streams, answer, translated
from podwire.failpoints import declare, failpoint
from podwire.linux import syscalls
from podwire.linux.proc.namespaces import identity, visit
from podwire.protocols.cni import errors, versions
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import dumped

_log = logging.getLogger("podwire.cniplugins")

THREADS = 32
"""Calls at once; others wait."""
BACKLOG = 1024
PATIENCE = 10
"""Seconds for a call to arrive, and for its answer to be taken: programs write and read at once."""
GRACE = 20.0
"""Seconds that calls have left when the daemon stops. They take milliseconds: one that takes so long waits in vain."""
BEGUN = declare("cnidaemon.begun", "a program knows that its call is begun, and nothing is done")
_CREDENTIALS = Struct("@iII")  # pid, uid, gid
_OWN = ("/proc/self/", "/proc/thread-self/")
_PAUSE = 0.1


Answer = Callable[[str, Streams], int]
"""Does what a program is asked, by its name and its surroundings; the exit code."""


class Place(NamedTuple):
    """Where a caller is, as open descriptors."""

    network: int
    mounts: int
    root: int
    directory: int


class Daemon:
    """Serves a listening socket. Threads are in the namespaces of the one who starts them."""

    def __init__(self, listener: socket.socket, threads: int = THREADS, answer: Answer = answer) -> None:
        self._listener = listener
        self._answer = answer
        self._threads = [Thread(target=self._work, name=f"podwire-cni-{each}", daemon=True) for each in range(threads)]
        self._tidying: set[Thread] = set()
        self._heard: set[socket.socket] = set()
        self._stopping = False
        self._netfilter = Netfilter()
        self._network, self._mounts = 0, (0, (0, 0))

    def start(self) -> None:
        for each in PLUGINS.values():
            import_module(each)
        self._mounts = identity("/proc/thread-self/ns/mnt", "mnt"), _file(os.stat("/"))
        self._network = identity("/proc/thread-self/ns/net")
        self._netfilter.elements, self._netfilter.conntrack  # noqa: B018 - opened here, where we are at home
        for thread in self._threads:
            thread.start()

    def stop(self, grace: float = GRACE) -> bool:
        """Returns when all that was begun is done, or after the grace; whether it is."""
        self._stopping = True
        self._listener.shutdown(socket.SHUT_RDWR)  # who connects is refused; accept() fails when nobody is left
        for each in tuple(self._heard):
            _hang_up(each)
        until = monotonic() + grace
        for thread in self._threads:
            if thread.ident is not None:  # a start that failed has begun some of them only
                thread.join(max(0.0, until - monotonic()))
        for thread in tuple(self._tidying):
            thread.join(max(0.0, until - monotonic()))
        late = [each.name for each in (*self._threads, *self._tidying) if each.is_alive()]
        if late:
            _log.error("calls are left unfinished, DEL gives back", extra={"seconds": grace, "threads": late})
            return False
        self._netfilter.close()
        return True

    def _work(self) -> None:
        syscalls.unshare(syscalls.FS)  # a working directory of its own
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno == errno.EINVAL or self._stopping:
                    return
                _log.error("no call can be taken", extra={"reason": str(error)})
                sleep(_PAUSE)  # too many open files: some are about to be closed
                continue
            with connection:
                try:
                    self._serve(connection)
                except Exception:  # noqa: BLE001 - the next call must have its turn
                    _log.exception("a call was lost")

    def _later(self, work: Callable[[], None]) -> None:
        """Each in a thread of its own: what is left for later waits for the kernel, and many wait as long as one."""

        def tidy() -> None:
            try:
                work()
            except Exception:  # noqa: BLE001 - nobody waits for it
                _log.exception("something was left behind")
            finally:
                self._tidying.discard(thread)

        thread = Thread(target=tidy, name="podwire-cni-tidy", daemon=True)
        self._tidying.add(thread)
        try:
            thread.start()
        except RuntimeError:  # as many as this machine allows
            tidy()

    def _serve(self, connection: socket.socket) -> None:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, pack("@ll", PATIENCE, 0))
        descriptors: list[int] = []
        try:
            request = self._received(connection, descriptors)
            place = Place(*descriptors)
            if self._is_elsewhere(request, place):
                connection.sendall(wire.DECLINED)
                return
            connection.sendall(wire.BEGUN)
            failpoint(BEGUN)
            connection.sendall(self._answered(connection, request, place))
        except wire.NotACall as error:
            _log.warning("somebody talks who is no plugin of ours", extra={"reason": str(error)})
        except OSError as error:  # begun or not, nobody hears of it; a runtime that gave up asks for DEL
            _log.warning("a caller has gone", extra={"reason": str(error)})
        finally:
            for each in descriptors:
                os.close(each)

    def _received(self, connection: socket.socket, descriptors: list[int]) -> wire.Request:
        """A call that is whole, or whole by the time we stop."""
        self._heard.add(connection)
        try:
            if self._stopping:
                _hang_up(connection)
            return _received(connection, descriptors)
        finally:
            self._heard.discard(connection)

    def _is_elsewhere(self, request: wire.Request, place: Place) -> bool:
        """Whether the caller means other files than we do by the same paths."""
        mounts = os.fstat(place.mounts).st_ino, _file(os.fstat(place.root))
        return mounts != self._mounts or request.environ.get("CNI_NETNS", "").startswith(_OWN)

    def _answered(self, connection: socket.socket, request: wire.Request, place: Place) -> bytes:
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(told)
        if uid not in (0, os.geteuid()):
            return _refused(CniError(Code.BAD_ENVIRONMENT, f"only root may ask for this, and not user {uid}"))
        begun = monotonic()
        try:
            done = self._done(connection, request, place)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller is told
            _log.exception("a call failed as none should")
            done = _refused(translated(error))
        _log.debug(
            "done",
            extra={
                "plugin": request.name,
                "verb": request.environ.get("CNI_COMMAND", ""),
                "container": request.environ.get("CNI_CONTAINERID", ""),
                "ms": round((monotonic() - begun) * 1e3, 2),
            },
        )
        return done

    def _done(self, connection: socket.socket, request: wire.Request, place: Place) -> bytes:
        stdout: list[bytes] = []
        stderr: list[str] = []
        kept = self._netfilter if os.fstat(place.network).st_ino == self._network else None
        gone = partial(_has_gone, connection)
        streams = Streams(request.environ, lambda: request.stdin, stdout.append, stderr.append, self._later, kept, gone)
        with visit(place.network):
            os.fchdir(place.directory)
            try:
                code = self._answer(request.name, streams)
            finally:
                os.chdir("/")
        return wire.answer(code, _lines(stdout), _lines([each.encode("utf-8", "backslashreplace") for each in stderr]))


def _received(connection: socket.socket, descriptors: list[int]) -> wire.Request:
    """A whole call; what came with it is added to `descriptors`, also when it is none."""
    head, ancillary, _, _ = connection.recvmsg(
        wire.CALL.size, socket.CMSG_SPACE(4 * wire.DESCRIPTORS), socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors += array("i", data[: len(data) // 4 * 4])
    if not head:
        raise wire.NotACall("it said nothing")
    sizes = wire.lengths(head)
    if len(descriptors) != wire.DESCRIPTORS:
        raise wire.NotACall(f"{len(descriptors)} descriptors, and {wire.DESCRIPTORS} belong to a call")
    body = bytearray(sum(sizes))
    left = memoryview(body)
    while left:
        count = connection.recv_into(left)
        if not count:
            raise wire.NotACall(f"{len(left)} bytes are missing")
        left = left[count:]
    return wire.request(sizes, bytes(body))


def _hang_up(connection: socket.socket) -> None:
    """What has come can be read, and then it ends. The other one may have gone by itself."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RD)


def _has_gone(connection: socket.socket) -> bool:
    """Whether the other end is closed."""
    poll = select.poll()
    poll.register(connection, 0)  # that is told in any case
    return bool(poll.poll(0))


def _lines(texts: list[bytes]) -> bytes:
    return b"".join(each + b"\n" for each in texts)


def _refused(error: CniError) -> bytes:
    return wire.answer(1, _lines([dumped(errors.encode(error, versions.LATEST))]), b"")


def _file(told: os.stat_result) -> tuple[int, int]:
    return told.st_dev, told.st_ino
