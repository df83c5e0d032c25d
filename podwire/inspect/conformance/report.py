"""Runs cases one after the other, and reports them as text, JSON or JUnit.

A case is a requirement of a specification. A MUST that is not met fails the run; a SHOULD is reported as a warning.
"""

import enum
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from xml.etree import ElementTree as ET

S = TypeVar("S")


class Unmet(Exception):
    """The requirement is not met; says what was expected and what happened."""


class NotApplicable(Exception):
    """The case does not apply to this plugin; says why."""


class Level(enum.Enum):
    MUST = "MUST"
    SHOULD = "SHOULD"


class Outcome(enum.Enum):
    PASSED = "passed"
    FAILED = "failed"
    WARNED = "warned"
    SKIPPED = "skipped"


_MARKS = {Outcome.PASSED: "✓", Outcome.FAILED: "✕", Outcome.WARNED: "!", Outcome.SKIPPED: "-"}


@dataclass(frozen=True, slots=True)
class Case(Generic[S]):
    name: str
    section: str
    """Where the specification requires it."""
    level: Level
    check: Callable[[S], None]
    """Raises Unmet, NotApplicable."""


class Cases(Generic[S]):
    """The cases of a specification, in the order of their definitions: `@case(name, section)` before a function."""

    def __init__(self) -> None:
        self.all: list[Case[S]] = []

    def __call__(
        self, name: str, section: str, level: Level = Level.MUST
    ) -> Callable[[Callable[[S], None]], Callable[[S], None]]:
        def register(check: Callable[[S], None]) -> Callable[[S], None]:
            self.all.append(Case(name, section, level, check))
            return check

        return register


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    section: str
    level: Level
    outcome: Outcome
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    subject: str
    specification: str
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.count(Outcome.FAILED)

    def count(self, outcome: Outcome) -> int:
        return sum(verdict.outcome is outcome for verdict in self.verdicts)


def run_cases(report: Report, cases: Sequence[Case[S]], subject: S, shown: Callable[[str], None]) -> None:
    """Runs all cases; `shown` gets each line of the text report when it is known."""
    for case in cases:
        began = time.monotonic()
        outcome, message = Outcome.PASSED, ""
        try:
            case.check(subject)
        except NotApplicable as error:
            outcome, message = Outcome.SKIPPED, str(error)
        except Unmet as error:
            outcome, message = _unmet(case.level), str(error)
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # a plugin may answer anything
            outcome, message = _unmet(case.level), f"the answer does not have the form of the specification: {error!r}"
        verdict = Verdict(case.name, case.section, case.level, outcome, message, time.monotonic() - began)
        report.verdicts.append(verdict)
        for line in lines(verdict):
            shown(line)


def _unmet(level: Level) -> Outcome:
    return Outcome.FAILED if level is Level.MUST else Outcome.WARNED


def lines(verdict: Verdict) -> Iterator[str]:
    """One case as text; one that is not met has the section of the specification, and what happened."""
    yield f"{_MARKS[verdict.outcome]} {verdict.name}"
    if verdict.outcome is Outcome.SKIPPED:
        yield f"    skipped: {verdict.message}"
    elif verdict.outcome is not Outcome.PASSED:
        yield f"    {verdict.level.value}, {verdict.section}"
        yield from (f"    {line}" for line in verdict.message.splitlines())


def summary(report: Report) -> str:
    counts = ", ".join(f"{report.count(outcome)} {outcome.value}" for outcome in Outcome)
    return f"{report.subject}, {report.specification}: {counts}"


def as_json(report: Report) -> str:
    cases: list[dict[str, Any]] = [
        {
            "name": verdict.name,
            "section": verdict.section,
            "level": verdict.level.value,
            "outcome": verdict.outcome.value,
            "message": verdict.message,
            "seconds": round(verdict.seconds, 3),
        }
        for verdict in report.verdicts
    ]
    head = {"subject": report.subject, "specification": report.specification, "ok": report.ok}
    return json.dumps({**head, "cases": cases}, indent=2, ensure_ascii=False)


def as_junit(report: Report) -> str:
    """One test case per case; a warning is written to its output, because JUnit has no word for it."""
    suite = ET.Element(
        "testsuite",
        name=f"{report.subject}, {report.specification}",
        tests=str(len(report.verdicts)),
        failures=str(report.count(Outcome.FAILED)),
        skipped=str(report.count(Outcome.SKIPPED)),
        time=f"{sum(verdict.seconds for verdict in report.verdicts):.3f}",
    )
    for verdict in report.verdicts:
        case = ET.SubElement(
            suite, "testcase", classname=report.subject, name=verdict.name, time=f"{verdict.seconds:.3f}"
        )
        text = f"{verdict.level.value}, {verdict.section}\n{verdict.message}"
        match verdict.outcome:
            case Outcome.FAILED:
                ET.SubElement(case, "failure", message=_first_line(verdict.message)).text = text
            case Outcome.SKIPPED:
                ET.SubElement(case, "skipped", message=_first_line(verdict.message))
            case Outcome.WARNED:
                ET.SubElement(case, "system-out").text = f"warning: {text}"
            case Outcome.PASSED:
                pass
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
