"""A command in a container: the launcher that was started here, and the process that it became in the container."""

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
from podwire.tasks.uncancelled import thread_to_completion

PID = "pid"
"""The file into which the OCI runtime writes the pid."""

MAX_ROUNDS = 100
"""A process that forks faster than it can be stopped this many times is left to the end of its container."""


@dataclass(slots=True)
class ExecProcess:
    """Ends by itself, or is killed with its descendants; then its launcher is reaped, once."""

    work: Path
    container: str
    child: Child
    kill_timeout: float
    _code: int | None = field(default=None, init=False)

    @classmethod
    def start(
        cls,
        work: Path,
        container: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        files: tuple[int, int, int],
        kill_timeout: float,
    ) -> "ExecProcess":
        return cls(work, container, processes.spawn(argv, env=env, files=files), kill_timeout)

    async def exited(self) -> None:
        """Waits for its end."""
        await descriptors.readable(self.child.pidfd)

    def code(self) -> int:
        """Returns the exit code as a shell reports it; only after its end."""
        if self._code is None:
            code = processes.reap(self.child)
            os.close(self.child.pidfd)
            self._code = code if code >= 0 else 128 - code
        return self._code

    async def finish(self) -> None:
        """Kills what is left of it; does nothing when it has ended."""
        if self._code is None:
            await thread_to_completion(self._kill)

    def _kill(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            _kill_tree(int((self.work / PID).read_text(encoding="ascii")), self.container)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        processes.wait(self.child.pidfd, self.kill_timeout)  # the event loop has made the descriptor non-blocking
        self.code()


def _kill_tree(root: int, container: str) -> None:
    """Stops a process and its descendants, so that none can fork away, then kills them."""
    stopped: dict[int, int] = {}
    try:
        for _ in range(MAX_ROUNDS):
            new = [pid for pid in (root, *_children(stopped)) if pid not in stopped]
            if not new:
                break
            for pid in new:
                stopped[pid] = _open_in(pid, container)
                processes.send_signal(stopped[pid], signal.SIGSTOP)
        for pidfd in stopped.values():
            processes.send_signal(pidfd, signal.SIGKILL)
    finally:
        for pidfd in stopped.values():
            os.close(pidfd)


def _children(pids: Mapping[int, int]) -> Iterator[int]:
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                yield from map(int, (thread / "children").read_text(encoding="ascii").split())


def _open_in(pid: int, container: str) -> int:
    """Returns a pidfd of a process, if it is in the container: its pid may be reused by now."""
    pidfd = processes.open_process(pid, processes.start_time(pid))
    try:
        if container in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8"):
            return pidfd
    except OSError:
        pass
    os.close(pidfd)
    raise NoSuchProcess(3, f"open process {pid}", f"it is not in container {container}")
