"""Commands inside containers: run to their end for probes (ExecSync), or offered as a conversation (Exec).

The streams of a container itself are offered in the same way (Attach).
"""

import asyncio
import contextlib
import functools
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import msgspec

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import (
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    ResourceExhausted,
)
from podwire.protocols.k8sapi.server_side import Socket
from podwire.protocols.streaming.remote_command import Streams
from podwire.runtime.containers.bundles import Bundles
from podwire.runtime.containers.container import Container
from podwire.runtime.containers.shim import ShimClient
from podwire.runtime.ports import Output
from podwire.runtime.streaming.attach import AttachSession
from podwire.runtime.streaming.exec_process import PID, ExecProcess
from podwire.runtime.streaming.exec_session import ExecSession, Files
from podwire.runtime.streaming.server import StreamingServer, TargetGone, talk
from podwire.tasks import descriptors

OUTPUT_BYTES = 16 * 1024 * 1024
"""Of both outputs together; a client takes no larger message."""


class ExecService:
    """Runs commands, or offers to."""

    def __init__(self, shims: ShimClient, bundles: Bundles, offers: StreamingServer) -> None:
        self._shims = shims
        self._bundles = bundles
        self._offers = offers

    async def run(self, container: Container, command: list[str], seconds: float) -> Output:
        """ExecSync. The command ends with its time, with its caller, or when it says too much."""
        _check(container, command)
        async with self._working(container, command, tty=False) as work:
            ours, theirs = _pipes()
            try:
                inside = await asyncio.to_thread(self._start, work, container, theirs)
            except OSError as error:
                _close(ours)
                raise Internal(f"the command cannot be run: {error}") from error
            finally:
                _close(theirs)
            try:
                return await _output(inside, ours, seconds)
            finally:
                await inside.finish()
                _close(ours)

    @contextlib.asynccontextmanager
    async def _working(self, container: Container, command: list[str], *, tty: bool) -> AsyncIterator[Path]:
        """A directory for one command, removed at its end."""
        work = self._bundles.home(container.id) / f"exec-{secrets.token_hex(8)}"
        try:
            await asyncio.to_thread(self._prepare, work, container, command, tty=tty)
            yield work
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, work, ignore_errors=True))

    def _prepare(self, work: Path, container: Container, command: list[str], *, tty: bool) -> None:
        """What the OCI runtime is told: the container's own process with another command line."""
        spec = msgspec.json.decode((self._bundles.home(container.id) / "config.json").read_bytes())
        process: dict[str, Any] = {**spec["process"], "args": command, "terminal": tty}
        work.mkdir(mode=0o700)
        (work / "process.json").write_bytes(msgspec.json.encode(process))

    def _start(self, work: Path, container: Container, files: Files, console: str = "") -> ExecProcess:
        doors = self._bundles.cgroups.doors(self._bundles.cgroup(container.id))
        argv = self._shims.exec_argv(container.id, work / "process.json", work / PID, doors, console)
        return ExecProcess.start(work, container.id, argv, self._shims.environment, files)

    def offer(self, container: Container, request: pb.ExecRequest) -> str:
        """Exec: a URL that is good for one conversation within a minute."""
        command, streams = list(request.cmd), _streams(request)
        _check(container, command)
        converse = functools.partial(self._converse, container, command, streams)
        return self._offers.add("exec", talk(streams, functools.partial(_still_running, container), converse))

    def offer_attach(self, container: Container, request: pb.AttachRequest) -> str:
        """Attach: likewise. The container's own setting decides whether there is a terminal, and whether input."""
        _check_running(container)
        streams = _streams(request)
        config = container.config
        if streams.tty != config.tty:
            raise InvalidArgument(f"tty: the container has {'a' if config.tty else 'no'} terminal")
        if streams.stdin and not config.stdin:
            raise InvalidArgument("stdin: the container was made without one")
        converse = AttachSession(self._shims, self._bundles.state(container.id), streams).run
        return self._offers.add("attach", talk(streams, functools.partial(_still_running, container), converse))

    async def _converse(self, container: Container, command: list[str], streams: Streams, socket: Socket) -> None:
        async with self._working(container, command, tty=streams.tty) as work:
            start = functools.partial(self._start, work, container)
            await ExecSession(work, streams, start).run(socket)


def _streams(request: pb.ExecRequest | pb.AttachRequest) -> Streams:
    if request.tty and request.stderr:
        raise InvalidArgument("tty and stderr: a terminal has no stderr of its own")
    if not (request.stdin or request.stdout or request.stderr):
        raise InvalidArgument("one of stdin, stdout or stderr must be set")
    return Streams(stdin=request.stdin, stdout=request.stdout, stderr=request.stderr, tty=request.tty)


def _check(container: Container, command: list[str]) -> None:
    if not command:
        raise InvalidArgument("cmd: must be given")
    _check_running(container)


def _check_running(container: Container) -> None:
    if not container.running:
        raise FailedPrecondition(f"container {container.id} is not running")


def _still_running(container: Container) -> None:
    if not container.running:
        raise TargetGone("the container has ended")


def _pipes() -> tuple[tuple[int, int], Files]:
    """Our ends of two outputs, not blocking, and the three files of a command."""
    (out, their_out), (err, their_err) = os.pipe(), os.pipe()
    for each in (out, err):
        os.set_blocking(each, False)
    return (out, err), (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), their_out, their_err)


def _close(files: Iterable[int]) -> None:
    for each in files:
        os.close(each)


async def _output(inside: ExecProcess, files: tuple[int, int], seconds: float) -> Output:
    """All that a command says until it ends; what it leaves in the background keeps nobody waiting."""
    full: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    outputs = [_Gathered(each, full) for each in files]
    tasks = [asyncio.create_task(each.follow()) for each in outputs]
    exited = asyncio.create_task(inside.exited())
    try:
        async with asyncio.timeout(seconds or None):
            await asyncio.wait((exited, full), return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError as error:
        raise DeadlineExceeded(f"the command did not end within {seconds:g} s") from error
    finally:
        for task in (exited, *tasks):
            task.cancel()
        await asyncio.gather(exited, *tasks, return_exceptions=True)
    for each in outputs:
        each.take()
    if sum(len(each.data) for each in outputs) > OUTPUT_BYTES:
        raise ResourceExhausted(f"the command said more than {OUTPUT_BYTES} bytes")
    return Output(inside.code(), *(bytes(each.data) for each in outputs))


class _Gathered:
    """One output of a command, as far as it was read."""

    def __init__(self, source: int, full: "asyncio.Future[None]") -> None:
        self.data = bytearray()
        self._source = source
        self._full = full

    async def follow(self) -> None:
        while self.take():
            await descriptors.readable(self._source)

    def take(self) -> bool:
        """Read what is there; False at the end, or when it is too much."""
        while len(self.data) <= OUTPUT_BYTES:
            try:
                chunk = os.read(self._source, descriptors.CHUNK)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self.data += chunk
        if not self._full.done():
            self._full.set_result(None)
        return False
