"""Two starts compared, or a start with a flow: failures first, then what was slower and what was missing. Pure."""

from collections.abc import Mapping
from typing import Any

from podwire.trace import tables
from podwire.trace.check import check
from podwire.trace.diff import Diff, Hop, Row, Sum, diff
from podwire.trace.flow import Flow
from podwire.trace.plain_text import plain
from podwire.trace.pod_trace import PodTrace
from podwire.trace.wording import headline, milliseconds


def compare_view(first: PodTrace, second: PodTrace) -> Mapping[str, Any]:
    comparison = diff(first, second)
    return {
        "a": _side(first),
        "b": _side(second),
        "verdict": list(tables.verdict(comparison)),
        "sums": [_sum(sum_) for sum_ in _sums(comparison)],
        "parts": [_sum(sum_) for sum_ in comparison.parts],
        "rows": [_row(row) for row in sorted(comparison.rows, key=_order)],
    }


def compare_flow_view(trace: PodTrace, flow: Flow) -> Mapping[str, Any]:
    findings = check(trace, flow)
    verdict = [plain(str(finding)) for finding in findings]
    about = f"{len(findings) or 'no'} deviations from the {flow.name} flow"
    return {"a": {"key": f"the {flow.name} flow"}, "b": _side(trace), "verdict": [about, *verdict]}


def _side(trace: PodTrace) -> Mapping[str, Any]:
    return {"pod": trace.pod, "key": plain(f"{trace.namespace}/{trace.name}"), "headline": plain(headline(trace))}


def _sums(comparison: Diff) -> list[Sum]:
    return [*comparison.phases, Sum("until Running", comparison.first.took, comparison.second.took)]


def _sum(sum_: Sum) -> Mapping[str, Any]:
    return {"name": sum_.name, "a": sum_.first, "b": sum_.second, "slower": sum_.slower}


def _order(row: Row) -> tuple[bool, bool, float]:
    """Failed calls come first, then those that only one of the two has, then the slowest."""
    failed = any(hop is not None and hop.failed for hop in (row.second, row.first))
    return not failed, row.slower is not None, -abs(row.slower or 0.0)


def _row(row: Row) -> Mapping[str, Any]:
    return {
        "hop": plain(f"{row.caller} → {row.callee}"),
        "call": plain(row.call),
        "kind": row.kind,
        "failed": any(hop is not None and hop.failed for hop in (row.first, row.second)),
        "a": _took(row.first),
        "b": _took(row.second),
        "slower": row.slower,
    }


def _took(hop: Hop | None) -> str:
    return "" if hop is None else f"{milliseconds(hop.took)}{' ✕' if hop.failed else ''}"
