"""The node daemon: does the work of the plugins' executables without starting an interpreter for each call.

A thread serves one call at a time. It enters the caller's network namespace and working directory, does what the
executable would do, and returns. A caller with another mount namespace or root means other files by the same paths: its
call is declined, and its executable does the work.

Shutdown:

1. The listener stops: executables that come now do their work without the daemon.
2. Calls that were accepted are done, also those still in the backlog. Connections that have not sent a whole call are
   shut down for reading.
3. Threads end after their current call. A call that takes longer than `Limits.grace` is abandoned, as by a daemon that
   is killed: its executable reports code 11, and DEL releases what was done.
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
from time import CLOCK_BOOTTIME, clock_gettime_ns, monotonic, sleep
from typing import NamedTuple

from podwire.cniplugins.daemon import wire
from podwire.cniplugins.netfilter import Netfilter
from podwire.cniplugins.skeleton import PLUGINS, Streams, answer, as_cni_error, started_at
from podwire.failpoints import declare, failpoint
from podwire.linux import syscalls
from podwire.linux.proc.namespaces import identity, visit
from podwire.protocols.cni import errors, versions
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import dumped

_log = logging.getLogger("podwire.cniplugins")

BACKLOG = 1024
BEGUN = declare("cnidaemon.begun", "the executable knows that its call is begun, and nothing is done")
_CREDENTIALS = Struct("@iII")  # pid, uid, gid
_PROCESS_PATHS = ("/proc/self/", "/proc/thread-self/")
"""Paths of namespaces that mean something else in another process."""


class Limits(NamedTuple):
    threads: int = 32
    """Calls at the same time; others wait in the backlog."""
    receive: int = 10
    """Seconds for a call to arrive, and for its answer to be read."""
    grace: float = 20.0
    """Seconds that running calls get at shutdown. They take milliseconds."""
    accept_pause: float = 0.1
    """Seconds to wait after `accept` failed, for example because all descriptors are in use."""


Answer = Callable[[str, Streams], int]
"""Runs a plugin by its name; returns the exit code."""


class CallerLocation(NamedTuple):
    """Open descriptors that say where a caller is."""

    network: int
    mounts: int
    root: int
    directory: int


class Daemon:
    """Serves a listening socket, with threads in the namespaces of the thread that calls `start`."""

    def __init__(
        self,
        listener: socket.socket,
        limits: Limits = Limits(),  # noqa: B008 - immutable
        answer: Answer = answer,
        *,
        any_mounts: bool = False,
    ) -> None:
        """`any_mounts` serves callers of other mount namespaces: for a pod that has the host's directories mounted."""
        self._listener, self._limits, self._answer, self._any_mounts = listener, limits, answer, any_mounts
        self._threads = [
            Thread(target=self._work, name=f"podwire-cni-{number}", daemon=True) for number in range(limits.threads)
        ]
        self._deferred: set[Thread] = set()
        self._receiving: set[socket.socket] = set()
        self._serving: set[socket.socket] = set()
        self._last_call = monotonic()
        self._stopping = False
        self._netfilter = Netfilter()
        self._network, self._mounts = 0, (0, (0, 0))

    def start(self, *, preload: bool = True) -> None:
        """Without `preload` the first call of a plugin imports it, and `import_plugins` may be called later."""
        if preload:
            import_plugins()
        self._mounts = identity("/proc/thread-self/ns/mnt", "mnt"), _file_id(os.stat("/"))
        self._network = identity("/proc/thread-self/ns/net")
        self._netfilter.elements, self._netfilter.conntrack  # noqa: B018 - opened in the daemon's own namespace
        for thread in self._threads:
            thread.start()

    def stop(self, grace: float | None = None) -> bool:
        """Waits until all calls that were begun are done, or for the grace; returns whether they are."""
        grace = self._limits.grace if grace is None else grace
        self._stopping = True
        self._listener.shutdown(socket.SHUT_RDWR)  # refuses new connections; accept() fails when the backlog is empty
        for connection in tuple(self._receiving):
            _stop_reading(connection)
        deadline = monotonic() + grace
        for thread in (*self._threads, *tuple(self._deferred)):
            if thread.ident is not None:  # a start that failed may not have started all of them
                thread.join(max(0.0, deadline - monotonic()))
        unfinished = [thread.name for thread in (*self._threads, *self._deferred) if thread.is_alive()]
        if unfinished:
            _log.error("cni daemon abandoned unfinished calls", extra={"seconds": grace, "threads": unfinished})
            return False
        self._netfilter.close()
        return True

    def _work(self) -> None:
        syscalls.unshare(syscalls.FS)  # a working directory of the thread's own
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno == errno.EINVAL or self._stopping:
                    return
                _log.error("cni daemon cannot accept connection", extra={"error": str(error)})
                sleep(self._limits.accept_pause)
                continue
            self._serving.add(connection)
            with connection:
                try:
                    self._serve(connection)
                except Exception:  # noqa: BLE001 - the thread must serve the next call
                    _log.exception("cni daemon lost a call")
                finally:
                    self._last_call = monotonic()
                    self._serving.discard(connection)

    def idle(self) -> float:
        """Returns the seconds since the last call ended; 0 while one is served."""
        return 0.0 if self._serving or self._deferred else monotonic() - self._last_call

    def _serve(self, connection: socket.socket) -> None:
        """Receives a call, runs it where its caller is, and sends the answer."""
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            connection.setsockopt(socket.SOL_SOCKET, option, pack("@ll", self._limits.receive, 0))
        descriptors: list[int] = []
        accepted = clock_gettime_ns(CLOCK_BOOTTIME)
        try:
            request = self._receive(connection, descriptors)
            caller = CallerLocation(*descriptors)
            mounts = os.fstat(caller.mounts).st_ino, _file_id(os.fstat(caller.root))
            elsewhere = mounts != self._mounts and not self._any_mounts
            if elsewhere or request.environ.get("CNI_NETNS", "").startswith(_PROCESS_PATHS):
                connection.sendall(wire.DECLINED)
                return
            connection.sendall(wire.BEGUN)
            failpoint(BEGUN)
            begun = monotonic()
            pid, uid = _peer(connection)
            if uid not in (0, os.geteuid()):
                reply = _refusal(CniError(Code.BAD_ENVIRONMENT, f"only root may call the daemon, not user {uid}"))
            else:
                stdout: list[bytes] = []
                stderr: list[str] = []
                streams = Streams(
                    request.environ,
                    lambda: request.stdin,
                    stdout.append,
                    stderr.append,
                    self._defer,
                    self._netfilter if os.fstat(caller.network).st_ino == self._network else None,
                    partial(_is_disconnected, connection),
                    started=partial(_started_at, pid, accepted),
                )
                try:
                    with visit(caller.network):
                        os.fchdir(caller.directory)
                        try:
                            code = self._answer(request.name, streams)
                        finally:
                            os.chdir("/")
                    lines = [line.encode("utf-8", "backslashreplace") for line in stderr]
                    reply = wire.answer(code, _lines(stdout), _lines(lines))
                except Exception as error:  # noqa: BLE001 - the caller gets every error
                    _log.exception("cni daemon call failed unexpectedly")
                    reply = _refusal(as_cni_error(error))
            connection.sendall(reply)
            fields = {
                "plugin": request.name,
                "verb": request.environ.get("CNI_COMMAND", ""),
                "container": request.environ.get("CNI_CONTAINERID", ""),
                "ms": round((monotonic() - begun) * 1e3, 2),
            }
            _log.debug("cni daemon answered call", extra=fields)
        except wire.NotACall as error:
            _log.warning("rejected connection: not a podwire-cni client", extra={"error": str(error)})
        except OSError as error:  # the caller gets no answer; a runtime that gave up sends DEL
            _log.warning("cni daemon caller disconnected", extra={"error": str(error)})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _receive(self, connection: socket.socket, descriptors: list[int]) -> wire.Request:
        """Receives a whole call; adds the descriptors that came with it to `descriptors`, also if it is not a call."""
        self._receiving.add(connection)
        try:
            if self._stopping:
                _stop_reading(connection)
            head, ancillary, _, _ = connection.recvmsg(
                wire.CALL.size, socket.CMSG_SPACE(4 * wire.DESCRIPTORS), socket.MSG_CMSG_CLOEXEC
            )
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    descriptors += array("i", data[: len(data) // 4 * 4])
            if not head:
                raise wire.NotACall("it sent nothing")
            sizes = wire.lengths(head)
            if len(descriptors) != wire.DESCRIPTORS:
                raise wire.NotACall(f"{len(descriptors)} descriptors, expected {wire.DESCRIPTORS}")
            body = bytearray(sum(sizes))
            left = memoryview(body)
            while left:
                count = connection.recv_into(left)
                if not count:
                    raise wire.NotACall(f"{len(left)} bytes are missing")
                left = left[count:]
            return wire.request(sizes, bytes(body))
        finally:
            self._receiving.discard(connection)

    def _defer(self, work: Callable[[], None]) -> None:
        """Runs work in a thread of its own: it waits for the kernel, and many wait in the time of one."""

        def run() -> None:
            try:
                work()
            except Exception:  # noqa: BLE001 - no caller waits for it
                _log.exception("cni daemon deferred work failed")
            finally:
                self._deferred.discard(thread)

        thread = Thread(target=run, name="podwire-cni-deferred", daemon=True)
        self._deferred.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the machine allows no more threads
            run()


def import_plugins() -> None:
    for module in PLUGINS.values():
        import_module(module)


def adopt_listener(descriptor: int) -> socket.socket:
    """Returns the listening socket that this process was started with."""
    return socket.socket(fileno=descriptor)


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Returns the caller's pid, which is 0 in another pid namespace, and its uid."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(credentials)
    return pid, uid


def _started_at(pid: int, accepted: int) -> int:
    """Returns when a caller was started, in nanoseconds since the boot: before its connection was accepted."""
    return min(started_at(pid) or accepted, accepted)


def _stop_reading(connection: socket.socket) -> None:
    """Lets a connection end after what has already been received; the peer may have closed it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RD)


def _is_disconnected(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, 0)  # POLLHUP is always reported
    return bool(poll.poll(0))


def _lines(texts: list[bytes]) -> bytes:
    return b"".join(text + b"\n" for text in texts)


def _refusal(error: CniError) -> bytes:
    return wire.answer(1, _lines([dumped(errors.encode(error, versions.LATEST))]), b"")


def _file_id(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
