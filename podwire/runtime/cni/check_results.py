"""What CHECK found of each pod the last time: kept on disk, for `podwire cni list` and for the next start.

A file is written when CHECK finds something else than before. When it finds the same, only the file's time changes: it
is when the pod was checked. Nothing is synced: what a loss of power takes was about pods that it takes, too.
"""

import contextlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from podwire.objects.times import rfc3339_micro
from podwire.protocols.cni.errors import Code
from podwire.runtime.cni.plugins import PluginFailed

_log = logging.getLogger("podwire.runtime.cni")

CHECKS = "checks"
"""Their directory, beside the memory of what is attached."""
_ENDING = ".json"


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pod's network: as CNI made it, or not, and then who says what."""

    state: Literal["ok", "failed"]
    since: float
    """Seconds since 1970; when this was found first."""
    was_ok: bool = False
    """Whether it was ever found as it was made."""
    plugin: str = ""
    code: int = 0
    msg: str = ""
    details: str = ""
    told: str = ""
    """All of it in one sentence."""

    @property
    def ok(self) -> bool:
        return self.state == "ok"

    @property
    def finding(self) -> tuple[str, str, int, str, str]:
        """What makes it the same as before, whenever it was found."""
        return self.state, self.plugin, self.code, self.msg, self.details


def judged(failure: PluginFailed | None, before: CheckResult | None, now: float) -> CheckResult:
    """What a check means after the one before it."""
    was_ok = before is not None and (before.ok or before.was_ok)
    if failure is None:
        found = CheckResult(state="ok", since=now)
    else:
        refusal = failure.refusal
        found = CheckResult(
            state="failed",
            since=now,
            was_ok=was_ok,
            plugin=failure.plugin,
            code=failure.code,
            msg=refusal.msg if refusal is not None else str(failure),
            details=refusal.details if refusal is not None else "",
            told=str(failure),
        )
    return before if before is not None and before.finding == found.finding else found


def gives_word(failure: PluginFailed) -> bool:
    """Whether a plugin says that something is wrong. Who is missing, dies, hangs or asks to come later says nothing."""
    return failure.refusal is not None and failure.code not in (Code.TRY_AGAIN_LATER, Code.INCOMPATIBLE_VERSION)


class CheckOutcome(NamedTuple):
    """What CHECK found, and what it had found before."""

    before: CheckResult | None
    after: CheckResult

    @property
    def news(self) -> bool:
        """Whether to tell: a failure, another failure, or that it is over. Not that all is well at first."""
        return self.after != self.before and not (self.after.ok and self.before is None)


class LatestCheck(NamedTuple):
    check: CheckResult
    at: float
    """Seconds since 1970."""

    def shown(self) -> str:
        """As JSON, for people and kubelets."""
        check = self.check
        told = {
            "state": check.state,
            "since": rfc3339_micro(check.since),
            "checkedAt": rfc3339_micro(self.at),
            **({} if check.ok else {"plugin": check.plugin, "code": check.code, "msg": check.msg}),
            **({"details": check.details} if check.details else {}),
            **({"message": check.told} if check.told else {}),
        }
        return msgspec.json.encode(told).decode()


class CheckResults:
    """By the pods' ids. Used by one process; what it left is taken up by the next."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known = kept(directory)

    def get(self, id_: str) -> LatestCheck | None:
        return self._known.get(id_)

    def note(self, id_: str, failure: PluginFailed | None, now: float) -> CheckOutcome:
        """Keep what was found. A disk that takes nothing keeps nobody from knowing."""
        known = self._known.get(id_)
        before = known.check if known is not None else None
        after = judged(failure, before, now)
        self._known[id_] = LatestCheck(after, now)
        try:
            self._write(self._path(id_), after, now, anew=after != before)
        except OSError as error:
            _log.warning("what CHECK found is not written down", extra={"id": id_, "reason": str(error)})
        return CheckOutcome(before, after)

    def forget(self, id_: str) -> None:
        if self._known.pop(id_, None) is not None:
            with contextlib.suppress(OSError):  # it says something of a pod that is gone, and the next start removes it
                self._path(id_).unlink(missing_ok=True)

    def forget_others(self, than: Iterable[str]) -> None:
        for each in self._known.keys() - set(than):
            self.forget(each)

    def _path(self, id_: str) -> Path:
        return self._directory / f"{id_}{_ENDING}"

    def _write(self, path: Path, check: CheckResult, at: float, *, anew: bool) -> None:
        if anew or not path.exists():
            self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}")
            temporary.write_bytes(msgspec.json.encode(check))
            temporary.replace(path)
        os.utime(path, (at, at))


def kept(directory: Path) -> dict[str, LatestCheck]:
    """All that is there. What cannot be read is left out: the next check replaces it."""
    found: dict[str, LatestCheck] = {}
    for path in sorted(directory.glob(f"[!.]*{_ENDING}")):
        try:
            check = msgspec.json.decode(path.read_bytes(), type=CheckResult)
            found[path.name.removesuffix(_ENDING)] = LatestCheck(check, path.stat().st_mtime)
        except (OSError, msgspec.MsgspecError) as error:
            _log.debug("a check cannot be read", extra={"path": str(path), "reason": str(error)})
    return found
