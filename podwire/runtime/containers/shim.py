"""The shim's command line and socket, from the runtime's side. shim/README.md is the contract.

The shim is started by `podwire-shim run`, which returns when the start is decided, and outlives this daemon. What it
knows lies in files: `started` while the container runs, `exit` once it has ended.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from podwire.linux.errors import DeadlinePassed, LinuxError, NoSuchProcess
from podwire.linux.proc import processes
from podwire.protocols.grpc_status import Internal, NotFound
from podwire.runtime.containers.bundles import MountedBundle
from podwire.runtime.ports import Exited, Started
from podwire.tasks import descriptors

START_SECONDS = 60.0
FORGET_SECONDS = 10.0
ASK_SECONDS = 5.0
UNKNOWN_EXIT = 255
"""The code of a container whose shim and whose exit nobody saw."""

EXIT_FILE_SECONDS = 5.0
"""How long the shim may take to write the exit down once the process is gone: it drains the output first."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class _Told(msgspec.Struct):
    """What `started` and `exit` say."""

    state: str = ""
    pid: int = 0
    start_ticks: int = 0
    code: int = 0
    signal: int = 0
    time_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimClient:
    """Starts containers through the shim, and asks it."""

    shim: Path
    """The program `podwire-shim`."""
    runtime: str
    """crun or runc, by path."""
    root: Path
    """Where the OCI runtime keeps its own state."""
    cover_unified: bool
    """Whether the version 2 tree must be hidden from crun: it refuses hybrids of both versions."""
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": PATH})
    run: Callable[..., processes.Finished] = processes.run
    """Runs a program to its end: how containers are started."""

    def _launcher(self, verb: str, doors: Sequence[str]) -> list[str]:
        argv = [str(self.shim), verb]
        for door in doors:
            argv += ["--cgroup", str(Path(door).parent)]
        return [*argv, "--cover-unified"] if self.cover_unified else argv

    def _oci(self) -> list[str]:
        argv = [self.runtime, "--root", str(self.root)]
        return [*argv, "--cgroup-manager=disabled"] if Path(self.runtime).name == "crun" else argv

    async def start(self, container: MountedBundle, *, held: bool = False) -> Started:
        """Run a container, or hold it right before its first instruction; raises Internal with what was said."""
        argv = self._launcher("run", container.cgroup_doors)
        argv += ["--id", container.id, "--bundle", str(container.bundle), "--state", str(container.state)]
        argv += ["--log", container.log_path] if container.log_path else []
        argv += ["--tty"] if container.tty else []
        argv += ["--stdin"] if container.stdin else []
        argv += ["--stdin-once"] if container.stdin and container.stdin_once else []
        argv += ["--", *self._oci(), *(["create"] if held else ["run", "--detach"]), "--bundle", str(container.bundle)]
        argv += ["--pid-file", str(container.state / "pid")]
        argv += ["--console-socket", str(container.state / "console.sock")] if container.tty else []
        await self._started(container.id, argv)
        started = self.started(container.state)
        if started is None:
            raise Internal(f"container {container.id} was started, but the shim did not say so")
        return started

    async def release(self, container: MountedBundle) -> None:
        """Let a container run that was held."""
        await self._started(container.id, [*self._oci(), "start"])

    async def _started(self, id_: str, argv: Sequence[str]) -> None:
        try:
            done = await asyncio.to_thread(self.run, [*argv, id_], env=self.environment, deadline=START_SECONDS)
        except DeadlinePassed as error:
            raise Internal(f"container {id_} was not started within {START_SECONDS:g} s") from error
        except LinuxError as error:
            raise Internal(f"{argv[0]} cannot be run: {error}") from error
        if done.code:
            reason = done.stderr.decode("utf-8", "replace").strip()
            raise Internal(f"container {id_} cannot be started: {reason or f'exit code {done.code}'}")

    def started(self, state: Path) -> Started | None:
        """The container's process as the shim wrote it down; None when it was never started."""
        told = _read(state / "started")
        return Started(told.pid, told.start_ticks) if told else None

    async def wait(self, state: Path, pid: int, pid_started: int) -> Exited:
        """Until a container's process has ended and the shim has written down how."""
        try:
            pidfd = processes.open_process(pid, pid_started)
        except NoSuchProcess:
            return await self._exit_of(state)
        try:
            await descriptors.readable(pidfd)
        finally:
            os.close(pidfd)
        return await self._exit_of(state)

    async def _exit_of(self, state: Path) -> Exited:
        """What the shim wrote; asked by its socket, which answers when all is written, else by the file alone."""
        if (told := _read(state / "exit")) is None:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(EXIT_FILE_SECONDS):
                    await _ask(state, "wait")
            told = _read(state / "exit")
        return Exited(told.code, told.time_ns) if told else Exited(UNKNOWN_EXIT, 0, known=False)

    async def reopen(self, state: Path) -> None:
        """Write the log to a new file at the same path."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                answer = await _ask(state, "reopen")
        except (OSError, TimeoutError) as error:
            raise NotFound(f"the container's shim does not answer: {error}") from error
        if not answer.startswith("ok"):
            raise Internal(f"the log cannot be reopened: {answer}")

    async def resize(self, state: Path, columns: int, rows: int) -> None:
        """Give the container's terminal a size; where there is none, nothing happens."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(ASK_SECONDS):
                await _ask(state, f"resize {columns} {rows}")

    async def line(self, state: Path, request: str) -> "ShimConnection":
        """A connection on which the shim gives output (attach) or takes input (stdin). Raises OSError."""
        line = ShimConnection(await _connect(state))
        try:
            async with asyncio.timeout(ASK_SECONDS):
                await line.send(f"{request}\n".encode())
                answer = await line.answer()
        except BaseException:
            line.close()
            raise
        if answer != "ok":
            line.close()
            raise ConnectionRefusedError(answer.removeprefix("error ") or "the container's shim has ended")
        return line

    async def signal(self, pid: int, pid_started: int, number: int) -> None:
        """Send a signal to a container's process; one that has ended is fine."""
        await asyncio.to_thread(_signal, pid, pid_started, number)

    def forget(self, id_: str) -> None:
        """Let the OCI runtime forget a container that has ended; again is fine."""
        argv = [*self._launcher("exec", ()), "--", *self._oci(), "delete", "--force", id_]
        with contextlib.suppress(LinuxError):
            processes.run(argv, env=self.environment, deadline=FORGET_SECONDS)

    def exec_argv(self, id_: str, process: Path, pid_file: Path, doors: Sequence[str], console: str) -> list[str]:
        """The command line that runs another process in a container, and dies with this daemon."""
        argv = [*self._launcher("exec", doors), "--die-with", str(os.getpid()), "--", *self._oci(), "exec"]
        if console:
            argv += ["--console-socket", console]
        return [*argv, "--process", str(process), "--pid-file", str(pid_file), id_]


def _read(path: Path) -> _Told | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Told)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _signal(pid: int, pid_started: int, number: int) -> None:
    try:
        pidfd = processes.open_process(pid, pid_started)
    except NoSuchProcess:
        return
    try:
        processes.send_signal(pidfd, signal.Signals(number) if number in signal.valid_signals() else signal.SIGKILL)
    finally:
        os.close(pidfd)


class ShimConnection:
    """An open connection to a shim."""

    def __init__(self, door: socket.socket) -> None:
        self._door = door
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._door, data)

    def finish(self) -> None:
        """Nothing more is sent; what comes may still be read."""
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_WR)

    async def answer(self) -> str:
        """The one line that the shim answers with, and not a byte more; empty when it is gone."""
        answer = b""
        while not answer.endswith(b"\n") and (byte := await self._loop.sock_recv(self._door, 1)):
            answer += byte
        return answer.decode("utf-8", "replace").strip()

    async def exactly(self, size: int) -> bytes:
        """So many bytes; empty when the shim is gone before they are all there."""
        data = bytearray()
        while len(data) < size:
            try:
                more = await self._loop.sock_recv(self._door, size - len(data))
            except ConnectionError:
                return b""
            if not more:
                return b""
            data += more
        return bytes(data)

    def close(self) -> None:
        self._door.close()


async def _connect(state: Path) -> socket.socket:
    """To the shim's socket. Its directory's path may be longer than a socket's may be, so it is named shortly."""
    directory = os.open(state, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.setblocking(False)
        await asyncio.get_running_loop().sock_connect(door, f"/proc/self/fd/{directory}/shim.sock")
    except BaseException:
        door.close()
        raise
    finally:
        os.close(directory)
    return door


async def _ask(state: Path, request: str) -> str:
    """One question to the shim."""
    with ShimConnection(await _connect(state)) as line:
        await line.send(f"{request}\n".encode())
        return await line.answer()
