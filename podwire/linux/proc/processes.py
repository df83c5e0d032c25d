"""Runs programs, and refers to processes by pidfds instead of by pids, which are reused."""

import errno
import fcntl
import os
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from time import monotonic
from typing import Any, NamedTuple

from podwire.linux import errors, syscalls

OUTPUT_LIMIT = 16 << 20
_RESET = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_CHUNK = 1 << 16


class Finished(NamedTuple):
    """Exit code of a program, or minus the signal that killed it, and its output."""

    code: int
    stdout: bytes
    stderr: bytes


class Child(NamedTuple):
    """A spawned process: its number, its descriptor (close it), and when it started."""

    pid: int
    pidfd: int
    started: int


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: bytes = b"",
    deadline: float,
    limit: int = OUTPUT_LIMIT,
    group: bool = True,
    kill_group: bool = False,
) -> Finished:
    """Run a program to its end, in a process group of its own that dies with the deadline (seconds from now).

    Without `group` it stays in the caller's process group, and the deadline kills the program alone. With `kill_group`
    the group dies with the program, in any case.

    NoSuchPath, NotPermitted when it cannot be started; DeadlinePassed, TooMuchOutput when it was killed for that.
    Background processes that it leaves are not waited for. `limit` is that of both outputs together.
    """
    ends = [os.pipe() for _ in range(3)]
    theirs = ends[0][0], ends[1][1], ends[2][1]
    ours = [ends[0][1], ends[1][0], ends[2][0]]
    with ExitStack() as stack:
        stack.callback(_close, ours)
        try:
            child = spawn(argv, env=env, files=theirs, group=group)
        finally:
            _close(theirs)
        stack.callback(os.close, child.pidfd)
        with ExitStack() as undo:
            undo.callback(_kill, child, group=group)
            stdout, stderr = _converse(child, ours, stdin, monotonic() + deadline, limit, argv[0])
            undo.pop_all()
        if kill_group:  # before the program is reaped: until then no other group can have its number
            _kill_group(child)
        return Finished(reap(child), stdout, stderr)


def _kill(child: Child, *, group: bool) -> None:
    if group:
        _kill_group(child)
    else:
        send_signal(child.pidfd, signal.SIGKILL)
    reap(child)


def _kill_group(child: Child) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    files: tuple[int, ...],
    session: bool = False,
    group: bool = True,
) -> Child:
    """Start a program with these files as its 0, 1, 2, …, this environment and no blocked or ignored signals.

    It leads a process group, or a session, unless it is to stay in our group. The memory of the caller is not copied,
    so its size costs nothing.
    """
    _keep_descriptors()
    # From 3 up, so that putting one in its place never overwrites another.
    raised = [file if file > 2 else fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3) for file in files]
    actions = [(os.POSIX_SPAWN_DUP2, held, at) for at, held in enumerate(raised)]
    own: dict[str, Any] = {"setsigdef": _RESET, "setsigmask": (), "file_actions": actions}
    own |= {"setsid": True} if session else {"setpgroup": 0} if group else {}
    try:
        pid = os.posix_spawn(_program(argv[0], env), list(argv), dict(env), **own)
    except OSError as error:
        names: errors.Names = {errno.ENOENT: errors.NoSuchPath, errno.ENOTDIR: errors.NoSuchPath}
        raise errors.from_oserror(error, f"run {argv[0]}", names) from error
    finally:
        _close([file for file in raised if file not in files])
    return Child(pid, os.pidfd_open(pid), start_time(pid))


def _program(name: str, env: Mapping[str, str]) -> str:
    """Finds a program on the PATH of its own environment."""
    if "/" in name:
        return name
    for directory in env.get("PATH", os.defpath).split(":"):
        path = os.path.join(directory, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise errors.NoSuchPath(errno.ENOENT, f"run {name}", "it is not on PATH")


def _keep_descriptors() -> None:
    """Ours are all close-on-exec; those that somebody else made in this process become so."""
    try:
        syscalls.close_on_exec(3)
    except errors.LinuxError:  # before Linux 5.11
        for file in map(int, os.listdir("/proc/self/fd")):
            if file > 2:
                with suppress(OSError):
                    os.set_inheritable(file, False)


def _close(files: Sequence[int]) -> None:
    for file in files:
        with suppress(OSError):
            os.close(file)


def _converse(child: Child, files: list[int], stdin: bytes, until: float, limit: int, name: str) -> tuple[bytes, bytes]:
    """Feed and read it until it exits. Takes from `files` what it closes."""
    write, *reads = files
    poll = _polled(child.pidfd, write, reads)
    waiting, output = memoryview(stdin), {read: bytearray() for read in reads}
    exited = False
    while not exited:
        left = until - monotonic()
        ready = {file for file, _ in poll.poll(left * 1000)} if left > 0 else set()
        if not ready:
            output.clear()  # the traceback keeps this frame, and with it what was read, until it is collected
            raise errors.DeadlinePassed(errno.ETIMEDOUT, f"run {name}")
        if write in ready and not (waiting := _feed(write, waiting)):
            poll.unregister(write)
            files.remove(write)
            os.close(write)
        exited = child.pidfd in ready
        for read in reads if exited else ready & set(reads):  # after its end, all that it wrote is there
            if not _take(read, output[read], limit) and not exited:
                poll.unregister(read)
        if sum(map(len, output.values())) > limit:
            output.clear()
            raise errors.TooMuchOutput(errno.EFBIG, f"run {name}", f"more than {limit} bytes")
    return bytes(output[reads[0]]), bytes(output[reads[1]])


def _polled(pidfd: int, write: int, reads: Sequence[int]) -> "select.poll":
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(write, select.POLLOUT)
    for file in (write, *reads):
        os.set_blocking(file, False)
    for read in reads:
        poll.register(read, select.POLLIN)
    return poll


def _feed(file: int, waiting: memoryview) -> memoryview:
    """Writes to the program; returns the rest, which is empty if the program has closed its standard input."""
    try:
        return waiting[os.write(file, waiting[:_CHUNK]) :]
    except BlockingIOError:
        return waiting
    except BrokenPipeError:
        return waiting[:0]


def _take(file: int, into: bytearray, limit: int) -> bool:
    """Read what is there, up to a round number of chunks and one chunk more than the limit; False at the end."""
    for _ in range(64):
        if len(into) > limit:
            return True
        try:
            chunk = os.read(file, _CHUNK)
        except BlockingIOError:
            return True
        into += chunk
        if not chunk:
            return False
    return True


def reap(child: Child) -> int:
    """Wait for a child to end; its exit code, or minus the signal that killed it."""
    status = os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED)
    if status is None:
        raise errors.NoSuchProcess(errno.ECHILD, f"wait for process {child.pid}")
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot: with its number, its identity until the next boot."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError) as error:
        raise errors.NoSuchProcess(errno.ESRCH, f"look at process {pid}") from error


def has_ended(pid: int) -> bool:
    """Whether a process is a zombie or gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def open_process(pid: int, started: int) -> int:
    """A descriptor of the very process that started then; never of one that got its number later. NoSuchProcess."""
    operation = f"open process {pid}"
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        raise errors.from_oserror(
            error, operation, {errno.EINVAL: errors.NoSuchProcess, errno.ESRCH: errors.NoSuchProcess}
        ) from error
    with ExitStack() as undo:
        undo.callback(os.close, pidfd)
        if start_time(pid) != started:  # else it had the number until now, and when the descriptor was made
            raise errors.NoSuchProcess(errno.ESRCH, operation, "another process has its number now")
        undo.pop_all()
    return pidfd


def send_signal(pidfd: int, number: int) -> bool:
    """False when it has ended."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    except OSError as error:
        raise errors.from_oserror(error, f"send signal {number}") from error
    return True


def wait(pidfd: int, seconds: float) -> bool:
    """Whether a process, anybody's, ended within this time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(max(seconds, 0) * 1000))


def boot_id() -> str:
    """Changes with every boot; numbers of processes mean nothing beyond it."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def memory_of(pid: int) -> int:
    """Returns the memory of a process in bytes (PSS): its own, and its share of what it has in common with others."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == "Pss":
                return int(value.split()[0]) * 1024
    raise LookupError(f"process {pid} has no PSS in smaps_rollup")
