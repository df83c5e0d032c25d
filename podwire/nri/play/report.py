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
    for each in done.exchanges:
        yield from _exchange(each)
    if done.error:
        yield f"  error: {done.error}"
    for written in done.written:
        yield from (f"      {line}" for line in written.diff())
    yield from (f"  ✕ {failure}" for failure in done.failures)


def _exchange(each: Exchange) -> Iterator[str]:
    name = f"{each.method} (via {each.via})" if each.via else each.method
    name = name if each.asked_by == "runtime" else f"→ {name}"
    share = "" if each.share is None or each.budget is None else f"{each.share:.0%} of {each.budget:g} s"
    outcome = "" if each.outcome == "OK" else f"✕ {each.outcome}{f': {each.error}' if each.error else ''}"
    yield f"  {name:{_CALL}}  {each.took * 1e3:8.1f} ms  {share:12}  {outcome}".rstrip()
    for change in each.changes:
        yield f"      {change}"


def verdict(result: Result) -> list[str]:
    """The end of the report."""
    calls = sum(len(each.exchanges) for each in result.steps)
    counted = f"{result.plugin or 'no plugin'}: {len(result.steps)} steps, {calls} calls"
    if result.ok:
        return [f"{counted}, all as expected"]
    return [f"{counted}, {len(result.failures)} not as expected:", *(f"  {each}" for each in result.failures)]


def plain(result: Result) -> dict[str, Any]:
    return {
        "script": result.source,
        "plugin": result.plugin,
        "ok": result.ok,
        "failures": result.failures,
        "steps": [each.plain() for each in result.steps],
    }


def as_json(result: Result) -> str:
    return json.dumps(plain(result), indent=2)


def as_junit(result: Result) -> str:
    """As JUnit XML: one test case per step."""
    failed = sum(bool(each.failures) for each in result.steps)
    suite = ET.Element("testsuite", name=result.source, tests=str(len(result.steps)), failures=str(failed))
    for number, each in enumerate(result.steps):
        case = ET.SubElement(
            suite, "testcase", classname=result.plugin, name=f"{number:02} {each.step.title}", time=f"{each.took:.3f}"
        )
        if each.failures:
            ET.SubElement(case, "failure", message=each.failures[0]).text = "\n".join(each.failures)
        ET.SubElement(case, "system-out").text = "\n".join(lines(each))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)
