"""CNI plugins as programs: found in the directories of CNI_PATH and nowhere else, run with a clean environment."""

import logging
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from podwire.linux import errors as linux
from podwire.linux.proc.processes import Finished, run
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
        """The error that the plugin printed, if it printed one."""
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
        self, directories: Sequence[Path], limits: CniLimits | None = None, run: Callable[..., Finished] = run
    ) -> None:
        """`run` runs a program to its end, as podwire.linux.proc.processes.run does."""
        self.directories = tuple(directories)
        self._limits = limits or CniLimits()
        self._run = run

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
        environment = {**invocation.environment(), "PATH": os.environ.get("PATH") or DEFAULT_PATH}
        stdin, give_up = dumped(config), time.monotonic() + limits.busy
        while True:
            try:
                done = self._run(
                    (str(program),), env=environment, stdin=stdin, deadline=limits.plugin, limit=limits.output
                )
                break
            except linux.DeadlinePassed as error:
                text = f"killed, because it did not end within {limits.plugin:g} s"
                raise PluginFailed(kind, verb, text, DeadlineExceeded) from error
            except linux.TooMuchOutput as error:
                raise PluginFailed(kind, verb, str(error), FailedPrecondition) from error
            except linux.LinuxError as error:
                # Busy: the program is being copied right now (ETXTBSY), so try again.
                if not isinstance(error, linux.Busy) or time.monotonic() > give_up:
                    raise PluginMissing(kind, verb, str(error), FailedPrecondition) from error
                time.sleep(_BUSY_PAUSE)
        if done.stderr:
            fields = {"plugin": kind, "verb": verb, "stderr": _quoted(done.stderr)}
            _log.debug("CNI plugin wrote to stderr", extra=fields)
        return _decode_output(kind, verb, done)


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
