"""A command inside a container: the launcher that was started here, and the process that it became there."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from podwire.linux.errors import NoSuchProcess
from podwire.linux.proc import processes
from podwire.linux.proc.processes import Child
from podwire.tasks import descriptors

PID = "pid"
"""The file in which the OCI runtime leaves the process's number."""

KILLED_WITHIN = 10.0
ROUNDS = 100
"""A process that forks faster than it can be stopped so many times is left to the end of its container."""


@dataclass(slots=True)
class ExecProcess:
    """Ends by itself, or is killed with all that it started; then its launcher is reaped, once."""

    work: Path
    container: str
    child: Child
    _code: int | None = field(default=None, init=False)

    @classmethod
    def start(
        cls,
        work: Path,
        container: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        files: tuple[int, int, int],
    ) -> "ExecProcess":
        return cls(work, container, processes.spawn(argv, env=env, files=files))

    async def exited(self) -> None:
        """Until it has ended."""
        await descriptors.readable(self.child.pidfd)

    def code(self) -> int:
        """The exit code as a shell tells it, of one that has ended."""
        if self._code is None:
            code = processes.reap(self.child)
            os.close(self.child.pidfd)
            self._code = code if code >= 0 else 128 - code
        return self._code

    async def finish(self) -> None:
        """Kill what is left of it; nothing happens when it has ended."""
        if self._code is None:
            await asyncio.shield(asyncio.to_thread(self._kill))

    def _kill(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            _kill_tree(int((self.work / PID).read_text(encoding="ascii")), self.container)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        processes.wait(self.child.pidfd, KILLED_WITHIN)  # the event loop made the descriptor one that does not wait
        self.code()


def _kill_tree(root: int, container: str) -> None:
    """Stop a process and all that it started, so that nobody forks away, then kill them."""
    held: dict[int, int] = {}
    try:
        for _ in range(ROUNDS):
            fresh = [pid for pid in (root, *_below(held)) if pid not in held]
            if not fresh:
                break
            for pid in fresh:
                held[pid] = _open_in(pid, container)
                processes.send_signal(held[pid], signal.SIGSTOP)
        for pidfd in held.values():
            processes.send_signal(pidfd, signal.SIGKILL)
    finally:
        for pidfd in held.values():
            os.close(pidfd)


def _below(pids: Mapping[int, int]) -> Iterator[int]:
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                yield from map(int, (thread / "children").read_text(encoding="ascii").split())


def _open_in(pid: int, container: str) -> int:
    """A descriptor of a process, if it is the container's: its number may be somebody else's by now."""
    pidfd = processes.open_process(pid, processes.start_time(pid))
    try:
        if container in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8"):
            return pidfd
    except OSError:
        pass
    os.close(pidfd)
    raise NoSuchProcess(3, f"open process {pid}", f"it is not in container {container}")
