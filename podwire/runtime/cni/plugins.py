"""CNI plugins as programs: found in the directories of CNI_PATH and nowhere else, run with a clean environment.

A call ends with all of its processes:

| when | what is killed |
|---|---|
| the plugin has ended | the rest of its process group |
| it was killed (deadline, output), or ADD failed | also what has left the group: all that inherited the call's mark |
| the runtime has died meanwhile | the same, by the next one, before its first call (`kill_orphaned_calls`) |

Without the last, an ADD that hangs would go on after the DEL of the restarted runtime, and nobody would release what it
takes. A daemon that a plugin starts on purpose, in a session of its own, stays if its ADD succeeds. The mark is a
variable of the environment (protocols/cni/caller.py); the process group of a marked leader is
killed, too. A process that a plugin starts with another environment and in another process group is not found.
"""

import logging
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path

from podwire.linux import errors as linux
from podwire.linux.proc.marked import kill_marked
from podwire.linux.proc.processes import Finished, run, start_time
from podwire.protocols.cni.caller import VARIABLE, Caller
from podwire.protocols.cni.config import checked_type
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.errors import decode as decode_error
from podwire.protocols.cni.values import Object, dumped, loaded
from podwire.protocols.cni.verbs import Invocation
from podwire.protocols.grpc_status import DeadlineExceeded, FailedPrecondition, RpcError, Unavailable, Unknown
from podwire.runtime.cni.limits import CniLimits

_log = logging.getLogger("podwire.runtime.cni")

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_QUOTED = 512
_BUSY_PAUSE = 0.02


class PluginFailed(Exception):
    """A plugin that returned an error, or printed something that is not an answer."""

    ran = True
    """Whether it may have changed something; False when there was no program to run."""

    def __init__(self, plugin: str, verb: str, error: CniError | str, kind: type[RpcError] = Unknown) -> None:
        self.plugin = plugin
        self.cni_error = error if isinstance(error, CniError) else None
        """The error that the plugin printed, or that its result has; None for any other failure."""
        self.code = error.code if isinstance(error, CniError) else 0
        self._kind = Unavailable if self.code == Code.TRY_AGAIN_LATER else kind
        text = f"code {self.code}: {error}" if self.code else str(error)
        super().__init__(f"CNI plugin {plugin} failed {verb}: {text}")

    def followed_by(self, others: Sequence["PluginFailed"]) -> "PluginFailed":
        """Returns this error with the later failures added to its text."""
        self.args = ("; then ".join(map(str, (self, *others))),)
        return self

    def rpc_error(self) -> RpcError:
        return self._kind(str(self))


class PluginMissing(PluginFailed):
    """There is no program, or none that can be trusted: it was not run, so nothing has to be undone."""

    ran = False


class Plugins:
    """The programs of some directories. Synchronous: a call occupies a thread for as long as the plugin runs."""

    def __init__(
        self,
        directories: Sequence[Path],
        limits: CniLimits | None = None,
        run: Callable[..., Finished] = run,
        state: Path | None = None,
    ) -> None:
        """`run` runs a program to its end, as podwire.linux.proc.processes.run does. `state` is the directory of the
        attachments for which plugins are called: orphaned calls of the same directory are ours to kill."""
        self.directories = tuple(directories)
        self._limits = limits or CniLimits()
        self._run = run
        self._state = state
        self._calls = count(1)

    @cached_property
    def _caller(self) -> Caller:
        """This process."""
        try:
            state = self._state.stat() if self._state is not None else None
        except FileNotFoundError:  # STATUS and VERSION by hand create nothing
            state = None
        directory = f"{state.st_dev}-{state.st_ino}" if state is not None else ""
        return Caller(os.getpid(), start_time(os.getpid()), Path("/proc/self/ns/pid").stat().st_ino, directory)

    def kill_orphaned_calls(self, was_added: Callable[[str, str], bool]) -> None:
        """Kills what is left of calls for the same attachments whose caller has died.

        `was_added` says whether ADD succeeded for an id and an interface: what such a call left was left on purpose.
        """

        def is_orphan(environment: Mapping[str, str]) -> bool:
            caller = Caller.parse(environment[VARIABLE])
            if caller is None or not caller.state or caller[2:4] != self._caller[2:4] or _is_alive(caller):
                return False
            key = environment.get("CNI_CONTAINERID", ""), environment.get("CNI_IFNAME", "")
            return environment.get("CNI_COMMAND") != "ADD" or not was_added(*key)

        self._kill(is_orphan, "killed plugin processes of a runtime that died")

    def kill_failed_add(self, id_: str, ifname: str) -> None:
        """Kills what is left of our ADD of one interface, which has failed: it must not take anything after DEL."""

        def is_left(environment: Mapping[str, str]) -> bool:
            caller = Caller.parse(environment[VARIABLE])
            names = ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME")
            ours = caller is not None and caller[:4] == self._caller[:4]
            return ours and [environment.get(name) for name in names] == ["ADD", id_, ifname]

        self._kill(is_left, "killed plugin processes of a failed ADD")

    def _kill(self, matches: Callable[[Mapping[str, str]], bool], message: str) -> None:
        try:
            if killed := kill_marked(VARIABLE, matches, self._limits.kill):
                _log.warning(message, extra={"pids": killed})
        except linux.LinuxError as error:  # a process that the kernel does not let end, ends when it does
            _log.error("cannot kill plugin processes", extra={"error": str(error)})

    @property
    def path(self) -> str:
        """CNI_PATH."""
        return ":".join(map(str, self.directories))

    def find(self, kind: str) -> Path:
        """Returns the program of a plugin type. Raises OSError when there is none that can be trusted."""
        checked_type(kind, "")
        for directory in self.directories:
            if (directory / kind).exists():
                _check_trusted(directory, directory=True)
                _check_trusted(directory / kind, directory=False)
                return directory / kind
        raise FileNotFoundError(f"plugin {kind} does not exist in {self.path}")

    def call(self, kind: str, invocation: Invocation, config: Object) -> Object | None:
        """Runs a plugin once. Returns the object that it printed, None when it printed nothing. Raises PluginFailed."""
        verb, limits = invocation.command, self._limits
        try:
            program = self.find(kind)
        except (OSError, CniError) as error:
            raise PluginMissing(kind, verb, str(error), FailedPrecondition) from error
        mark = self._caller._replace(call=next(self._calls)).encode()
        environment = {**invocation.environment(), "PATH": os.environ.get("PATH") or DEFAULT_PATH, VARIABLE: mark}
        stdin, give_up = dumped(config), time.monotonic() + limits.busy
        while True:
            try:
                done = self._run(
                    (str(program),),
                    env=environment,
                    stdin=stdin,
                    deadline=limits.plugin,
                    limit=limits.output,
                    kill_group=True,
                )
                break
            except (linux.DeadlinePassed, linux.TooMuchOutput) as error:
                self._kill(lambda marked: marked[VARIABLE] == mark, "killed processes of a plugin that was killed")
                if isinstance(error, linux.TooMuchOutput):
                    raise PluginFailed(kind, verb, str(error), FailedPrecondition) from error
                text = f"killed, because it did not end within {limits.plugin:g} s"
                raise PluginFailed(kind, verb, text, DeadlineExceeded) from error
            except linux.LinuxError as error:
                # Busy: the program is being copied right now (ETXTBSY), so try again.
                if not isinstance(error, linux.Busy) or time.monotonic() > give_up:
                    raise PluginMissing(kind, verb, str(error), FailedPrecondition) from error
                time.sleep(_BUSY_PAUSE)
        if done.stderr:
            fields = {"plugin": kind, "verb": verb, "stderr": _quoted(done.stderr)}
            _log.debug("CNI plugin wrote to stderr", extra=fields)
        return _decode_output(kind, verb, done)


def _is_alive(caller: Caller) -> bool:
    try:
        return start_time(caller.pid) == caller.started
    except linux.NoSuchProcess:
        return False


def _check_trusted(path: Path, *, directory: bool) -> None:
    """Plugins run as root: a file that others can write is not run."""
    state = path.stat()
    if not directory and not stat.S_ISREG(state.st_mode):
        raise PermissionError(f"{path} is not a regular file")
    if state.st_uid not in (0, os.geteuid()) or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} is not run, because others than root can write to it")
    if not directory and not state.st_mode & 0o111:
        raise PermissionError(f"{path} is not executable")


def _decode_output(kind: str, verb: str, done: Finished) -> Object | None:
    try:
        value = loaded(done.stdout, "output") if done.stdout.strip() else None
    except CniError as error:
        text = f"{_exit_status(done)} and printed invalid JSON: {_quoted(done.stdout)}"
        raise PluginFailed(kind, verb, text) from error
    if (cni_error := decode_error(value)) is not None:  # an error counts, whatever the exit code is
        raise PluginFailed(kind, verb, cni_error)
    if done.code:
        text = _quoted(done.stdout) or _quoted(done.stderr) or "no output"
        raise PluginFailed(kind, verb, f"{_exit_status(done)} with: {text}")
    if value is not None and not isinstance(value, dict):
        raise PluginFailed(kind, verb, f"printed something that is not a JSON object: {_quoted(done.stdout)}")
    return value


def _exit_status(done: Finished) -> str:
    return f"was killed by signal {-done.code}" if done.code < 0 else f"ended with exit code {done.code}"


def _quoted(data: bytes) -> str:
    text = data.decode("utf-8", "backslashreplace").strip()
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]} …"
