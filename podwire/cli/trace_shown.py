"""What `podwire trace` tells programs: JSON of stories, of their records, of two side by side. Pure."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import msgspec

from podwire.trace.diff import Diff, Hop, Row, Sum
from podwire.trace.phases import parts, phases
from podwire.trace.pod_trace import PodTrace
from podwire.trace.record import Record


def as_json(records: Iterable[Record]) -> str:
    return json.dumps([msgspec.to_builtins(record) for record in records], indent=2) + "\n"


def listed(trace: PodTrace) -> dict[str, Any]:
    """One of the pods that were seen: times are seconds."""
    return {
        "pod": trace.pod,
        "namespace": trace.namespace,
        "name": trace.name,
        "begin": trace.begin,
        "took": trace.took,
        "phases": {phase.name: phase.seconds for phase in phases(trace)},
        "parts": {part.name: {"seconds": part.seconds, "calls": part.calls} for part in parts(trace)},
    }


def diff_as_json(told: Diff) -> str:
    value = {
        "a": listed(told.first),
        "b": listed(told.second),
        "phases": [_sum(phase) for phase in told.phases],
        "parts": [_sum(part) for part in told.parts],
        "hops": [_row(row) for row in told.rows],
    }
    return json.dumps(value, indent=2)


def _sum(each: Sum) -> dict[str, Any]:
    return {"name": each.name, "a": each.first, "b": each.second, "slower": each.slower}


def _row(row: Row) -> dict[str, Any]:
    sides = {"a": _hop(row.first), "b": _hop(row.second)}
    return {"from": row.caller, "to": row.callee, "call": row.call, "kind": row.kind, **sides, "slower": row.slower}


def _hop(hop: Hop | None) -> dict[str, Any] | None:
    return None if hop is None else asdict(hop)
