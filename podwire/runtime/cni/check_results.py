"""The latest CHECK result of each pod: on disk, for `podwire cni list` and for the next start.

The file is written when CHECK finds something else than before. When it finds the same, only the file's modification
time changes: it is the time of the check. Nothing is fsynced: after a power loss the pods are gone, too. A file that
cannot be decoded is ignored and replaced by the next check, so these files need neither format nor quarantine.
"""

import contextlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from podwire.durable.files import replace_file, sweep
from podwire.objects.times import rfc3339_micro
from podwire.protocols.cni.errors import Code
from podwire.runtime.cni.plugins import PluginFailed

_log = logging.getLogger("podwire.runtime.cni")

CHECKS = "checks"
"""Directory of the results, beside the cache of attachments."""
_SUFFIX = ".json"


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a pod's network is as ADD made it; if not, what the plugin reported."""

    state: Literal["ok", "failed"]
    since: float
    """Seconds since 1970; when this was found first."""
    was_ok: bool = False
    """Whether CHECK ever succeeded for this pod."""
    plugin: str = ""
    code: int = 0
    msg: str = ""
    details: str = ""
    message: str = msgspec.field(default="", name="told")
    """All of it in one sentence."""

    @property
    def ok(self) -> bool:
        return self.state == "ok"

    @property
    def finding(self) -> tuple[str, str, int, str, str]:
        """Equal for two results that found the same."""
        return self.state, self.plugin, self.code, self.msg, self.details


def next_result(failure: PluginFailed | None, before: CheckResult | None, now: float) -> CheckResult:
    """Returns the result of a check; the one before when both found the same."""
    was_ok = before is not None and (before.ok or before.was_ok)
    if failure is None:
        after = CheckResult(state="ok", since=now)
    else:
        error = failure.cni_error
        after = CheckResult(
            state="failed",
            since=now,
            was_ok=was_ok,
            plugin=failure.plugin,
            code=failure.code,
            msg=error.msg if error is not None else str(failure),
            details=error.details if error is not None else "",
            message=str(failure),
        )
    return before if before is not None and before.finding == after.finding else after


def is_finding(failure: PluginFailed) -> bool:
    """Whether a plugin reports that something is wrong. A plugin that is missing, dies, hangs or asks to try again
    later reports nothing about the pod."""
    return failure.cni_error is not None and failure.code not in (Code.TRY_AGAIN_LATER, Code.INCOMPATIBLE_VERSION)


class CheckOutcome(NamedTuple):
    """The result of a check, and the one before."""

    before: CheckResult | None
    after: CheckResult

    @property
    def changed(self) -> bool:
        """Whether to report it: a failure, another failure, or its end. Not a first success."""
        return self.after != self.before and not (self.after.ok and self.before is None)


class LatestCheck(NamedTuple):
    """A result, and when it was last confirmed."""

    result: CheckResult
    at: float
    """Seconds since 1970."""

    def report(self) -> str:
        """Returns the result as JSON, for people and kubelets."""
        result = self.result
        fields = {
            "state": result.state,
            "since": rfc3339_micro(result.since),
            "checkedAt": rfc3339_micro(self.at),
            **({} if result.ok else {"plugin": result.plugin, "code": result.code, "msg": result.msg}),
            **({"details": result.details} if result.details else {}),
            **({"message": result.message} if result.message else {}),
        }
        return msgspec.json.encode(fields).decode()


class CheckResults:
    """Results by the pods' ids. Used by one process; the next one loads what it left."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with contextlib.suppress(OSError):  # what cannot be removed does no harm
            sweep(directory)  # a process that was killed may have left a temporary file
        self._latest = load_results(directory)

    def get(self, id_: str) -> LatestCheck | None:
        return self._latest.get(id_)

    def record(self, id_: str, failure: PluginFailed | None, now: float) -> CheckOutcome:
        """Records a result. A full disk does not keep it from being reported."""
        latest = self._latest.get(id_)
        before = latest.result if latest is not None else None
        after = next_result(failure, before, now)
        self._latest[id_] = LatestCheck(after, now)
        path = self._path(id_)
        try:
            if after != before or not path.exists():
                self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
                replace_file(path, msgspec.json.encode(after), 0o644)
            os.utime(path, (now, now))
        except OSError as error:
            _log.warning("cannot write CHECK result", extra={"id": id_, "error": str(error)})
        return CheckOutcome(before, after)

    def remove(self, id_: str) -> None:
        if self._latest.pop(id_, None) is not None:
            with contextlib.suppress(OSError):  # the next start removes it
                self._path(id_).unlink(missing_ok=True)

    def keep_only(self, ids: Iterable[str]) -> None:
        """Removes the results of all other pods."""
        for id_ in self._latest.keys() - set(ids):
            self.remove(id_)

    def _path(self, id_: str) -> Path:
        return self._directory / f"{id_}{_SUFFIX}"


def load_results(directory: Path) -> dict[str, LatestCheck]:
    """Returns all results that can be decoded."""
    results: dict[str, LatestCheck] = {}
    for path in sorted(directory.glob(f"[!.]*{_SUFFIX}")):
        try:
            result = msgspec.json.decode(path.read_bytes(), type=CheckResult)
            results[path.name.removesuffix(_SUFFIX)] = LatestCheck(result, path.stat().st_mtime)
        except (OSError, msgspec.MsgspecError) as error:
            _log.debug("cannot read CHECK result", extra={"path": str(path), "error": str(error)})
    return results
