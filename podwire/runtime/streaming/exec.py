"""Commands in containers: ExecSync runs one to its end (probes), Exec and Attach return a URL for a session."""

import asyncio
import contextlib
import functools
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
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
from podwire.protocols.streaming.channels import Streams
from podwire.runtime.containers.bundles import Bundles
from podwire.runtime.containers.container import Container
from podwire.runtime.containers.shim import ShimClient
from podwire.runtime.limits import RuntimeLimits
from podwire.runtime.ports import ListenConsole
from podwire.runtime.streaming.attach import AttachSession
from podwire.runtime.streaming.exec_process import PID, ExecProcess
from podwire.runtime.streaming.exec_session import ExecSession, Files
from podwire.runtime.streaming.server import StreamingServer, TargetGone, session_handler
from podwire.tasks import descriptors
from podwire.tasks.uncancelled import thread_to_completion


@dataclass(frozen=True, slots=True)
class Output:
    """The result of ExecSync."""

    code: int
    stdout: bytes
    stderr: bytes


class ExecService:
    """ExecSync, Exec and Attach."""

    def __init__(
        self,
        shim: ShimClient,
        bundles: Bundles,
        server: StreamingServer,
        listen_console: ListenConsole,
        limits: RuntimeLimits | None = None,
    ) -> None:
        self._shim = shim
        self._bundles = bundles
        self._server = server
        self._listen_console = listen_console
        self._limits = limits or RuntimeLimits()

    async def run(self, container: Container, command: list[str], seconds: float) -> Output:
        """ExecSync. The command is killed after its time, with its caller, or when its output is too long."""
        _check_command(container, command)
        async with self._work_directory(container, command, tty=False) as work:
            with ExitStack() as ours:
                (out, their_out), (err, their_err) = os.pipe(), os.pipe()
                for file in (out, err):
                    ours.callback(os.close, file)
                    os.set_blocking(file, False)
                with ExitStack() as theirs:
                    files = (os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), their_out, their_err)
                    for file in files:
                        theirs.callback(os.close, file)
                    try:
                        process = await asyncio.to_thread(self._start, work, container, files)
                    except OSError as error:
                        raise Internal(f"the command cannot be run: {error}") from error
                try:
                    return await _collect(process, (out, err), seconds, self._limits.exec_output)
                finally:
                    await process.finish()

    @contextlib.asynccontextmanager
    async def _work_directory(self, container: Container, command: list[str], *, tty: bool) -> AsyncIterator[Path]:
        """A directory for one command, removed at its end."""
        work = self._bundles.bundle(container.id) / f"exec-{secrets.token_hex(8)}"
        try:
            await asyncio.to_thread(self._write_process, work, container, command, tty=tty)
            yield work
        finally:
            await thread_to_completion(shutil.rmtree, work, ignore_errors=True)

    def _write_process(self, work: Path, container: Container, command: list[str], *, tty: bool) -> None:
        """Writes process.json: the container's own process with another command line."""
        spec = msgspec.json.decode((self._bundles.bundle(container.id) / "config.json").read_bytes())
        process: dict[str, Any] = {**spec["process"], "args": command, "terminal": tty}
        work.mkdir(mode=0o700)
        (work / "process.json").write_bytes(msgspec.json.encode(process))

    def _start(self, work: Path, container: Container, files: Files, console: str = "") -> ExecProcess:
        cgroups, group = self._bundles.cgroups, self._bundles.cgroup(container.id)
        argv = self._shim.exec_argv(
            container.id, work / "process.json", work / PID, cgroups.procs_files(group), console
        )
        return ExecProcess.start(
            work,
            container.id,
            argv,
            self._shim.environment,
            files,
            self._limits.kill,
            container.record.pid,
            functools.partial(cgroups.pids, group),
        )

    def exec_url(self, container: Container, request: pb.ExecRequest) -> str:
        """Exec: returns a URL that is valid for one session within a minute."""
        command, streams = list(request.cmd), _streams(request)
        _check_command(container, command)
        run = functools.partial(self._run_session, container, command, streams)
        handler = session_handler(streams, functools.partial(_check_still_running, container), run)
        return self._server.add("exec", handler)

    def attach_url(self, container: Container, request: pb.AttachRequest) -> str:
        """Attach: returns a URL likewise. The container's own setting decides about terminal and input."""
        _check_running(container)
        streams = _streams(request)
        config = container.config
        if streams.tty != config.tty:
            raise InvalidArgument(f"tty: the container has {'a' if config.tty else 'no'} terminal")
        if streams.stdin and not config.stdin:
            raise InvalidArgument("stdin: the container was created without stdin")
        run = AttachSession(self._shim, self._bundles.state(container.id), streams).run
        handler = session_handler(streams, functools.partial(_check_still_running, container), run)
        return self._server.add("attach", handler)

    async def _run_session(self, container: Container, command: list[str], streams: Streams, socket: Socket) -> None:
        async with self._work_directory(container, command, tty=streams.tty) as work:
            start = functools.partial(self._start, work, container)
            await ExecSession(work, streams, start, self._listen_console).run(socket)


def _streams(request: pb.ExecRequest | pb.AttachRequest) -> Streams:
    if request.tty and request.stderr:
        raise InvalidArgument("tty and stderr: a terminal has no stderr of its own")
    if not (request.stdin or request.stdout or request.stderr):
        raise InvalidArgument("one of stdin, stdout or stderr must be set")
    return Streams(stdin=request.stdin, stdout=request.stdout, stderr=request.stderr, tty=request.tty)


def _check_command(container: Container, command: list[str]) -> None:
    if not command:
        raise InvalidArgument("cmd: must be given")
    _check_running(container)


def _check_running(container: Container) -> None:
    if not container.running:
        raise FailedPrecondition(f"container {container.id} is not running")


def _check_still_running(container: Container) -> None:
    if not container.running:
        raise TargetGone("the container has ended")


async def _collect(process: ExecProcess, files: tuple[int, int], seconds: float, limit: int) -> Output:
    """Collects the output until the command ends; processes that it leaves in the background are not waited for."""
    full: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    outputs = [_Buffer(file, full, limit) for file in files]
    tasks = [asyncio.create_task(output.follow()) for output in outputs]
    exited = asyncio.create_task(process.exited())
    try:
        async with asyncio.timeout(seconds or None):
            await asyncio.wait((exited, full), return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError as error:
        raise DeadlineExceeded(f"the command did not end within {seconds:g} s") from error
    finally:
        for task in (exited, *tasks):
            task.cancel()
        await asyncio.gather(exited, *tasks, return_exceptions=True)
    for output in outputs:
        output.read_available()
    if sum(len(output.data) for output in outputs) > limit:
        raise ResourceExhausted(f"the output of the command is longer than {limit} bytes")
    return Output(process.code(), *(bytes(output.data) for output in outputs))


class _Buffer:
    """One output of a command, as far as it was read."""

    def __init__(self, source: int, full: "asyncio.Future[None]", limit: int) -> None:
        self.data = bytearray()
        self._source = source
        self._full = full
        self._limit = limit

    async def follow(self) -> None:
        while self.read_available():
            await descriptors.readable(self._source)

    def read_available(self) -> bool:
        """Reads what is available. Returns False at the end, or when it is too long."""
        while len(self.data) <= self._limit:
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
