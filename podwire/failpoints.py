"""Failpoints: named steps at which a test can make the program fail, wait or die; free when none is set.

`PODWIRE_FAILPOINTS="store.commit=1*off->kill;store.synced=error(disk on fire)"` or the name of a file with the same
text in `PODWIRE_FAILPOINTS_FILE`, read on every hit so that a test can change it while a daemon runs.
A term is `[COUNT*]ACTION[(ARG)]`; terms are joined by `->` and used up from left to right; the last one stays.
Actions: off, error(text), kill (SIGKILL to this process), delay(seconds), hold(path) (waits until the file exists,
and first creates `path.held`, by which a test knows that the failpoint was reached).
`kill(path)` first creates that file, and does nothing if it exists: a program that is restarted after each death dies
once.

Short-lived programs import this module, so its imports are few.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator

KNOWN: dict[str, str] = {}
"""All declared failpoints: name to the sentence that says when it is passed."""

_TERM = re.compile(r"^(?:(?P<count>\d+)\*)?(?P<action>off|error|kill|delay|hold)(?:\((?P<arg>[^)]*)\))?$")


class FailpointHit(Exception):
    """The error that an `error` action raises."""


class _Term:
    __slots__ = ("action", "argument", "left")

    def __init__(self, action: str, argument: str, left: int | None) -> None:
        self.action, self.argument, self.left = action, argument, left


class _Plan:
    """The terms that are set for one failpoint, used up as it is hit."""

    __slots__ = ("terms",)

    def __init__(self, terms: list[_Term]) -> None:
        self.terms = terms

    def next(self) -> _Term | None:
        for term in self.terms:
            if term.left is None:
                return term
            if term.left > 0:
                term.left -= 1
                return term
        return None


class BadFailpoint(ValueError):
    """An invalid setting; the message names the invalid part."""


def parse(text: str) -> dict[str, _Plan]:
    """Returns the plans that a setting describes. Raises BadFailpoint."""
    plans: dict[str, _Plan] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, separator, terms = part.partition("=")
        if not separator:
            raise BadFailpoint(f"{part!r}: expected NAME=TERM")
        plans[name.strip()] = _Plan(list(_terms(name, terms)))
    return plans


def _terms(name: str, text: str) -> Iterator[_Term]:
    for term in text.split("->"):
        match = _TERM.match(term.strip())
        if match is None:
            raise BadFailpoint(f"{name}: {term!r} is invalid, expected [COUNT*]off|error|kill|delay|hold[(ARG)]")
        count = match["count"]
        yield _Term(match["action"], match["arg"] or "", int(count) if count else None)


def declare(name: str, when: str) -> str:
    """Declares a failpoint, once, at import; returns its name."""
    KNOWN[name] = when
    return name


def _die(argument: str) -> None:
    if argument:
        try:
            os.close(os.open(argument, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.SIGKILL)


def _fail(argument: str) -> None:
    raise FailpointHit(argument or "failpoint")


def _delay(argument: str) -> None:
    time.sleep(float(argument or "0"))


def _hold(argument: str) -> None:
    os.close(os.open(f"{argument}.held", os.O_CREAT | os.O_CLOEXEC, 0o600))
    while not os.path.exists(argument):  # noqa: PTH110 - pathlib costs more than the programs that ask
        time.sleep(0.005)


_ACTIONS: dict[str, Callable[[str], None]] = {
    "off": lambda _argument: None,
    "error": _fail,
    "kill": _die,
    "delay": _delay,
    "hold": _hold,
}

_plans = parse(os.environ.get("PODWIRE_FAILPOINTS", ""))
_file = os.environ.get("PODWIRE_FAILPOINTS_FILE", "")
_file_text = ""


def failpoint(name: str) -> None:
    """Runs the action that is set for this failpoint; costs one comparison when none is set."""
    if _plans or _file:
        _hit(name)


def _hit(name: str) -> None:
    global _plans, _file_text
    if _file and (text := _read(_file)) != _file_text:
        _plans, _file_text = parse(text), text
    term = plan.next() if (plan := _plans.get(name)) else None
    if term is not None:
        _ACTIONS[term.action](term.argument)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - as above
            return file.read()
    except FileNotFoundError:
        return ""
