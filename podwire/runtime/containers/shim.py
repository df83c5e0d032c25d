"""Client of `podwire-shim`: its command line, its files and its socket. shim/README.md is the contract.

`podwire-shim run` returns when the start is decided; the shim itself survives this daemon. Its files say what happened:
`started` while the container runs, `exit` once it has ended.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from podwire.linux.errors import DeadlinePassed, LinuxError, NoSuchProcess
from podwire.linux.proc import processes
from podwire.protocols.grpc_status import Internal, NotFound
from podwire.runtime.containers.bundles import MountedBundle
from podwire.runtime.limits import RuntimeLimits
from podwire.runtime.ports import ConnectUnix, ShimConnection
from podwire.tasks import descriptors

UNKNOWN_EXIT = 255
"""The exit code of a container whose shim was killed before it wrote one."""
SOCKET = "shim.sock"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Started:
    """The first process of a container."""

    pid: int
    pid_started: int


@dataclass(frozen=True, slots=True)
class Exited:
    """The end of a container."""

    code: int
    finished_at: int
    known: bool = True
    """Whether the shim saw the exit; else the code is UNKNOWN_EXIT."""


class _State(msgspec.Struct):
    """The content of `started` and `exit`."""

    state: str = ""
    pid: int = 0
    start_ticks: int = 0
    code: int = 0
    signal: int = 0
    time_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimClient:
    """Starts containers through the shim, and talks to running shims."""

    shim: Path
    """The program `podwire-shim`."""
    runtime: str
    """The path of crun or runc."""
    root: Path
    """The directory in which the OCI runtime keeps its own state."""
    cover_unified: bool
    """Whether the version 2 tree must be hidden from crun: it refuses hybrids of both versions."""
    connect: ConnectUnix
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": PATH})
    run: Callable[..., processes.Finished] = processes.run
    """Runs a program to its end: how containers are started."""
    limits: RuntimeLimits = field(default_factory=RuntimeLimits)

    def _launcher(self, verb: str, cgroup_files: Sequence[str]) -> list[str]:
        argv = [str(self.shim), verb]
        for file in cgroup_files:
            argv += ["--cgroup", str(Path(file).parent)]
        return [*argv, "--cover-unified"] if self.cover_unified else argv

    def _oci(self) -> list[str]:
        argv = [self.runtime, "--root", str(self.root)]
        return [*argv, "--cgroup-manager=disabled"] if Path(self.runtime).name == "crun" else argv

    async def start(self, container: MountedBundle, *, held: bool = False) -> Started:
        """Starts a container; `held` stops it right before its first instruction. Raises Internal with the error."""
        argv = self._launcher("run", container.cgroup_files)
        argv += ["--id", container.id, "--bundle", str(container.bundle), "--state", str(container.state)]
        argv += ["--log", container.log_path] if container.log_path else []
        argv += ["--tty"] if container.tty else []
        argv += ["--stdin"] if container.stdin else []
        argv += ["--stdin-once"] if container.stdin and container.stdin_once else []
        argv += ["--", *self._oci(), *(["create"] if held else ["run", "--detach"]), "--bundle", str(container.bundle)]
        argv += ["--pid-file", str(container.state / "pid")]
        argv += ["--console-socket", str(container.state / "console.sock")] if container.tty else []
        await self._run_to_end(container.id, argv)
        started = self.started(container.state)
        if started is None:
            raise Internal(f"container {container.id} was started, but the shim wrote no {container.state}/started")
        return started

    async def release(self, container: MountedBundle) -> None:
        """Lets a held container run."""
        await self._run_to_end(container.id, [*self._oci(), "start"])

    async def _run_to_end(self, id_: str, argv: Sequence[str]) -> None:
        seconds = self.limits.start
        try:
            done = await asyncio.to_thread(self.run, [*argv, id_], env=self.environment, deadline=seconds)
        except DeadlinePassed as error:
            raise Internal(f"container {id_} was not started within {seconds:g} s") from error
        except LinuxError as error:
            raise Internal(f"{argv[0]} cannot be run: {error}") from error
        if done.code:
            output = done.stderr.decode("utf-8", "replace").strip()
            raise Internal(f"container {id_} cannot be started: {output or f'exit code {done.code}'}")

    def started(self, state: Path) -> Started | None:
        """Returns the container's first process; None when it was never started."""
        started = _read(state / "started")
        return Started(started.pid, started.start_ticks) if started else None

    async def wait(self, state: Path, pid: int, pid_started: int) -> Exited:
        """Waits until a container's process has ended and the shim has written `exit`."""
        with contextlib.suppress(NoSuchProcess):
            pidfd = processes.open_process(pid, pid_started)
            try:
                await descriptors.readable(pidfd)
            finally:
                os.close(pidfd)
        if (exited := _read(state / "exit")) is None:  # the shim still drains the output: it answers when it is done
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self.limits.exit_file):
                    await self._request(state, "wait")
            exited = _read(state / "exit")
        return Exited(exited.code, exited.time_ns) if exited else Exited(UNKNOWN_EXIT, 0, known=False)

    async def reopen_log(self, state: Path) -> None:
        """Has the shim write the log to a new file at the same path."""
        try:
            async with asyncio.timeout(self.limits.shim_request):
                answer = await self._request(state, "reopen")
        except (OSError, TimeoutError) as error:
            raise NotFound(f"the container's shim does not answer: {error}") from error
        if not answer.startswith("ok"):
            raise Internal(f"the log cannot be reopened: {answer}")

    async def resize(self, state: Path, columns: int, rows: int) -> None:
        """Sets the size of the container's terminal; does nothing for a container without one."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self.limits.shim_request):
                await self._request(state, f"resize {columns} {rows}")

    async def _request(self, state: Path, request: str) -> str:
        with contextlib.closing(await self.connect(state, SOCKET)) as connection:
            await connection.send(f"{request}\n".encode())
            return await connection.receive_line()

    async def open_stream(self, state: Path, request: str) -> ShimConnection:
        """Returns a connection on which the shim sends output (attach) or takes input (stdin). Raises OSError."""
        with contextlib.ExitStack() as undo:
            connection = await self.connect(state, SOCKET)
            undo.callback(connection.close)
            async with asyncio.timeout(self.limits.shim_request):
                await connection.send(f"{request}\n".encode())
                answer = await connection.receive_line()
            if answer != "ok":
                raise ConnectionRefusedError(answer.removeprefix("error ") or "the container's shim has ended")
            undo.pop_all()
        return connection

    async def signal(self, pid: int, pid_started: int, number: int) -> None:
        """Sends a signal to a container's process; does nothing when it has ended."""
        await asyncio.to_thread(_signal, pid, pid_started, number)

    def delete(self, id_: str) -> None:
        """Has the OCI runtime remove its state of a container that has ended; idempotent."""
        argv = [*self._launcher("exec", ()), "--", *self._oci(), "delete", "--force", id_]
        with contextlib.suppress(LinuxError):
            processes.run(argv, env=self.environment, deadline=self.limits.delete)

    def has_state(self, id_: str) -> bool:
        """Returns whether the OCI runtime knows a container."""
        return (self.root / id_).exists()

    def exec_argv(
        self, id_: str, process: Path, pid_file: Path, cgroup_files: Sequence[str], console: str
    ) -> list[str]:
        """Returns the command line that runs another process in a container, and ends with this daemon."""
        argv = [*self._launcher("exec", cgroup_files), "--die-with", str(os.getpid())]
        detaches = console and Path(self.runtime).name == "runc"  # else it takes no console socket
        argv += ["--detached", str(pid_file)] if detaches else []
        argv += ["--", *self._oci(), "exec", *(["--detach"] if detaches else [])]
        argv += ["--console-socket", console] if console else []
        return [*argv, "--process", str(process), "--pid-file", str(pid_file), id_]


def _read(path: Path) -> _State | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_State)
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
