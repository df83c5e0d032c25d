"""A command in a container: the launcher that was started here, and the process that it became in the container."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from podwire.linux.errors import NoSuchProcess
from podwire.linux.proc import processes
from podwire.linux.proc.processes import Child
from podwire.tasks import descriptors
from podwire.tasks.uncancelled import thread_to_completion

PID = "pid"
"""The file into which the OCI runtime writes the pid."""

PID_ROUNDS, PID_PAUSE = 200, 0.005
"""How often the file is looked for when the command is to be killed, and seconds in between."""
MAX_ROUNDS = 100
"""A process that forks faster than it can be stopped this many times is left to the end of its container."""


@dataclass(slots=True)
class ExecProcess:
    """Ends by itself, or is killed with its descendants; then its launcher is reaped, once."""

    work: Path
    container: str
    child: Child
    kill_timeout: float
    first: int
    """The pid of the container's first process."""
    members: Callable[[], Sequence[int]]
    """Returns the processes of the container."""
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
        first: int,
        members: Callable[[], Sequence[int]],
    ) -> "ExecProcess":
        return cls(work, container, processes.spawn(argv, env=env, files=files), kill_timeout, first, members)

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
        """Ends the command: all its processes are gone when this returns, but for those that left its session.

        The launcher is their parent from the container's view. It lives until it has reaped the command: an orphan
        would be a zombie for as long as the container's first process does not reap.
        """
        root = self._command_pid()
        ended = self._kill_processes(root, lambda: self._session(root)) if root else False
        if not processes.wait(self.child.pidfd, self.kill_timeout if ended else 0):
            self._kill_processes(self.child.pid, lambda: ())
            processes.send_signal(self.child.pidfd, signal.SIGKILL)  # in case it had not entered the container yet
        processes.wait(self.child.pidfd, self.kill_timeout)  # the event loop has made the descriptor non-blocking
        self.code()

    def _command_pid(self) -> int:
        """Returns the pid of the command; 0 when the OCI runtime did not get that far.

        The file is written a moment after the command has begun.
        """
        for _ in range(PID_ROUNDS):
            with contextlib.suppress(OSError, ValueError):
                return int((self.work / PID).read_text(encoding="ascii"))
            if processes.wait(self.child.pidfd, PID_PAUSE):
                break
        return 0

    def _kill_processes(self, root: int, others: Callable[[], Iterable[int]]) -> bool:
        """Stops a process, its descendants and others, so that none can fork away, then kills them.

        Returns whether all have ended.
        """
        stopped: dict[int, int] = {}
        with contextlib.ExitStack() as opened:
            for _ in range(MAX_ROUNDS):
                new = {root, *_children(stopped), *others()} - stopped.keys()
                for pid in new:
                    with contextlib.suppress(NoSuchProcess):
                        pidfd = _open_in(pid, self.container)
                        opened.callback(os.close, pidfd)
                        processes.send_signal(pidfd, signal.SIGSTOP)
                        stopped[pid] = pidfd
                if not stopped.keys() & new:
                    break
            for pidfd in stopped.values():
                processes.send_signal(pidfd, signal.SIGKILL)
            until = monotonic() + self.kill_timeout
            return all(processes.wait(pidfd, until - monotonic()) for pidfd in stopped.values())

    def _session(self, root: int) -> Iterator[int]:
        """Yields the container's processes in the command's session, if it has one of its own."""
        with contextlib.suppress(ProcessLookupError):
            session = os.getsid(root)
            if session == os.getsid(self.first):
                return
            for pid in self.members():
                with contextlib.suppress(ProcessLookupError):
                    if os.getsid(pid) == session:
                        yield pid


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
