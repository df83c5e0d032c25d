"""Reports of a played script: text, JSON, JUnit."""

import json
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

from podwire.nri.play.outcome import Outcome
from podwire.nri.play.player import Result
from podwire.nri.proxy import Exchange

_CALL = 30


def lines(done: Outcome) -> Iterator[str]:
    """One step as text: calls, responses, the diff of config.json, failures."""
    yield done.step.title
    for exchange in done.exchanges:
        yield from _exchange(exchange)
    if done.error:
        yield f"  error: {done.error}"
    for written in done.written:
        yield from (f"      {line}" for line in written.diff())
    yield from (f"  ✕ {failure}" for failure in done.failures)


def _exchange(exchange: Exchange) -> Iterator[str]:
    name = f"{exchange.method} (via {exchange.via})" if exchange.via else exchange.method
    name = name if exchange.asked_by == "runtime" else f"→ {name}"
    has_share = exchange.share is not None and exchange.budget is not None
    share = f"{exchange.share:.0%} of {exchange.budget:g} s" if has_share else ""
    error = f": {exchange.error}" if exchange.error else ""
    outcome = "" if exchange.outcome == "OK" else f"✕ {exchange.outcome}{error}"
    yield f"  {name:{_CALL}}  {exchange.took * 1e3:8.1f} ms  {share:12}  {outcome}".rstrip()
    for change in exchange.changes:
        yield f"      {change}"


def verdict(result: Result) -> list[str]:
    """The end of the report."""
    calls = sum(len(outcome.exchanges) for outcome in result.steps)
    counted = f"{result.plugin or 'no plugin'}: {len(result.steps)} steps, {calls} calls"
    if result.ok:
        return [f"{counted}, all as expected"]
    return [f"{counted}, {len(result.failures)} not as expected:", *(f"  {failure}" for failure in result.failures)]


def plain(result: Result) -> dict[str, Any]:
    return {
        "script": result.source,
        "plugin": result.plugin,
        "ok": result.ok,
        "failures": result.failures,
        "steps": [outcome.plain() for outcome in result.steps],
    }


def as_json(result: Result) -> str:
    return json.dumps(plain(result), indent=2)


def as_junit(result: Result) -> str:
    """As JUnit XML: one test case per step."""
    failed = sum(bool(outcome.failures) for outcome in result.steps)
    suite = ET.Element("testsuite", name=result.source, tests=str(len(result.steps)), failures=str(failed))
    for number, outcome in enumerate(result.steps):
        case = ET.SubElement(
            suite,
            "testcase",
            classname=result.plugin,
            name=f"{number:02} {outcome.step.title}",
            time=f"{outcome.took:.3f}",
        )
        if outcome.failures:
            ET.SubElement(case, "failure", message=outcome.failures[0]).text = "\n".join(outcome.failures)
        ET.SubElement(case, "system-out").text = "\n".join(lines(outcome))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)
