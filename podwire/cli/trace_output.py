"""Machine-readable output of `podwire trace`: JSON, and spans for an OpenTelemetry collector."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import msgspec

from podwire.cli.main import UserError
from podwire.trace.diff import Diff, Hop, Row, Sum
from podwire.trace.otlp import CONTENT_TYPE, encoded, rejected
from podwire.trace.otlp_endpoint import BadEndpoint, endpoint, shown
from podwire.trace.phases import parts, phases
from podwire.trace.plain_text import cut, plain
from podwire.trace.pod_trace import PodTrace
from podwire.trace.record import Record
from podwire.trace.spans import spans
from podwire.transports.http_post import Posted, Unreachable, posting


def as_json(records: Iterable[Record]) -> str:
    return json.dumps([msgspec.to_builtins(record) for record in records], indent=2) + "\n"


def listed(trace: PodTrace) -> dict[str, Any]:
    """Returns one of the recorded pods; times are seconds."""
    return {
        "pod": trace.pod,
        "namespace": trace.namespace,
        "name": trace.name,
        "begin": trace.begin,
        "took": trace.took,
        "phases": {phase.name: phase.seconds for phase in phases(trace)},
        "parts": {part.name: {"seconds": part.seconds, "calls": part.calls} for part in parts(trace)},
    }


def diff_as_json(comparison: Diff) -> str:
    value = {
        "a": listed(comparison.first),
        "b": listed(comparison.second),
        "phases": [_sum(phase) for phase in comparison.phases],
        "parts": [_sum(part) for part in comparison.parts],
        "hops": [_row(row) for row in comparison.rows],
    }
    return json.dumps(value, indent=2)


def _sum(sum_: Sum) -> dict[str, Any]:
    return {"name": sum_.name, "a": sum_.first, "b": sum_.second, "slower": sum_.slower}


def _row(row: Row) -> dict[str, Any]:
    sides = {"a": _hop(row.first), "b": _hop(row.second)}
    return {"from": row.caller, "to": row.callee, "call": row.call, "kind": row.kind, **sides, "slower": row.slower}


def _hop(hop: Hop | None) -> dict[str, Any] | None:
    return None if hop is None else asdict(hop)


def send(url: str, trace: PodTrace, records: Iterable[Record]) -> int:
    """Sends the trace of one pod to an OpenTelemetry collector."""
    try:
        to = endpoint(url)
    except BadEndpoint as error:
        raise UserError(f"--otlp {error}") from error
    pod_spans = spans(records)
    try:
        posted = asyncio.run(_post(to, encoded(pod_spans)))
    except Unreachable as error:
        raise UserError(f"{shown(to)} cannot be reached: {cut(plain(str(error)), 200)}") from error
    if not 200 <= posted.status < 300:
        raise UserError(f"{shown(to)} answers {posted.status}: {_first_line(posted.body)}")
    refused, why = rejected(posted.body)
    if refused:
        raise UserError(f"{shown(to)} refuses {refused} of {len(pod_spans)} spans: {cut(plain(why), 200)}")
    print(f"{len(pod_spans)} spans of trace {trace.pod} sent to {shown(to)}")
    return 0


async def _post(url: str, body: bytes) -> Posted:
    async with posting(url, CONTENT_TYPE) as post:
        return await post(body)


def _first_line(body: bytes) -> str:
    return cut(plain(body.decode("utf-8", "replace").partition("\n")[0]), 200) or "nothing"
