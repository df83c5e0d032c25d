"""Plugins as programs: found in the directories of CNI_PATH and nowhere else, run with a clean environment."""

import logging
import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from podwire.linux import errors as linux
from podwire.linux.proc.processes import Finished, run
from podwire.protocols.cni.config import checked_type
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.errors import decode as decode_error
from podwire.protocols.cni.values import Object, dumped, loaded
from podwire.protocols.cni.verbs import Invocation
from podwire.protocols.grpc_status import DeadlineExceeded, FailedPrecondition, RpcError, Unavailable, Unknown

_log = logging.getLogger("podwire.runtime.cni")

SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_QUOTED = 512
_BUSY_STEP = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one call of a plugin may take."""

    seconds: float = 60.0
    output: int = 4 << 20
    """Bytes of both outputs."""
    busy: float = 5.0
    """Seconds to wait for a program that is being written at this moment."""


class PluginFailed(Exception):
    """A plugin that said no, or nothing that can be understood."""

    ran = True
    """Whether it may have done something; not when there was no program to run."""

    def __init__(self, plugin: str, verb: str, error: CniError | str, kind: type[RpcError] = Unknown) -> None:
        self.plugin = plugin
        self.refusal = error if isinstance(error, CniError) else None
        """In the plugin's own words, when it had some."""
        self.code = error.code if isinstance(error, CniError) else 0
        self._kind = Unavailable if self.code == Code.TRY_AGAIN_LATER else kind
        told = f"code {self.code}: {error}" if self.code else str(error)
        super().__init__(f"CNI plugin {plugin} failed {verb}: {told}")

    def followed_by(self, others: Sequence["PluginFailed"]) -> "PluginFailed":
        """The same, with what failed after it in its sentence."""
        self.args = ("; then ".join(map(str, (self, *others))),)
        return self

    def as_rpc(self) -> RpcError:
        return self._kind(str(self))


class PluginMissing(PluginFailed):
    """There is no program, or none that can be trusted: it was not run, so there is nothing to give back."""

    ran = False


class Plugins:
    """The programs of some directories. Synchronous: one call takes a thread for as long as the plugin runs."""

    def __init__(
        self, directories: Sequence[Path], limits: Limits | None = None, run: Callable[..., Finished] = run
    ) -> None:
        """`run` runs a program to its end, as podwire.linux.proc.processes.run does."""
        self.directories = tuple(directories)
        self._limits = limits or Limits()
        self._run_program = run

    @property
    def path(self) -> str:
        """CNI_PATH."""
        return ":".join(map(str, self.directories))

    def find(self, kind: str) -> Path:
        """The program of a type; raises OSError when there is none that can be trusted."""
        checked_type(kind, "")
        for each in self.directories:
            if (each / kind).exists():
                _trusted(each, directory=True)
                _trusted(each / kind, directory=False)
                return each / kind
        raise FileNotFoundError(f"there is no {kind} in {self.path}")

    def call(self, kind: str, invocation: Invocation, config: Object) -> Object | None:
        """Run it once. The object that it printed, None when it printed nothing; PluginFailed."""
        verb = invocation.command
        try:
            program = self.find(kind)
        except (OSError, CniError) as error:
            raise PluginMissing(kind, verb, str(error), FailedPrecondition) from error
        environment = {**invocation.environment(), "PATH": os.environ.get("PATH") or SEARCH}
        try:
            done = self._run(program, environment, dumped(config))
        except linux.DeadlinePassed as error:
            told = f"killed, for it did not end within {self._limits.seconds:g} s"
            raise PluginFailed(kind, verb, told, DeadlineExceeded) from error
        except linux.TooMuchOutput as error:
            raise PluginFailed(kind, verb, str(error), FailedPrecondition) from error
        except linux.LinuxError as error:
            raise PluginMissing(kind, verb, str(error), FailedPrecondition) from error
        if done.stderr:
            _log.debug("a CNI plugin wrote", extra={"plugin": kind, "verb": verb, "stderr": _quoted(done.stderr)})
        return _understood(kind, verb, done)

    def _run(self, program: Path, environment: dict[str, str], stdin: bytes) -> Finished:
        until = time.monotonic() + self._limits.busy
        while True:
            try:
                return self._run_program(
                    (str(program),),
                    env=environment,
                    stdin=stdin,
                    deadline=self._limits.seconds,
                    limit=self._limits.output,
                )
            except linux.Busy:  # it is being copied; whoever copies it will be done soon
                if time.monotonic() > until:
                    raise
                time.sleep(_BUSY_STEP)


def _trusted(path: Path, *, directory: bool) -> None:
    """Plugins run as root: what others can write is not run."""
    told = path.stat()
    if not directory and not stat.S_ISREG(told.st_mode):
        raise PermissionError(f"{path} is no regular file")
    if told.st_uid not in (0, os.geteuid()) or told.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} is not run, because others than root can write to it")
    if not directory and not told.st_mode & 0o111:
        raise PermissionError(f"{path} is not executable")


def _understood(kind: str, verb: str, done: Finished) -> Object | None:
    try:
        value = loaded(done.stdout, "output") if done.stdout.strip() else None
    except CniError as error:
        told = f"{_ended(done)} and printed what is no JSON: {_quoted(done.stdout)}"
        raise PluginFailed(kind, verb, told) from error
    if (refusal := decode_error(value)) is not None:  # whatever its exit code
        raise PluginFailed(kind, verb, refusal)
    if done.code:
        told = _quoted(done.stdout) or _quoted(done.stderr) or "no word"
        raise PluginFailed(kind, verb, f"{_ended(done)} with: {told}")
    if value is not None and not isinstance(value, dict):
        raise PluginFailed(kind, verb, f"printed no JSON object: {_quoted(done.stdout)}")
    return value


def _ended(done: Finished) -> str:
    return f"was killed by signal {-done.code}" if done.code < 0 else f"ended with exit code {done.code}"


def _quoted(data: bytes) -> str:
    text = data.decode("utf-8", "backslashreplace").strip()
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]} …"
