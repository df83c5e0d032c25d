"""A recorded start as the page shows it: the sequence diagram, the waterfall, phases, failures. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from podwire.trace.check import annotated
from podwire.trace.critical_path import critical_path
from podwire.trace.diff import failures
from podwire.trace.flow import FLOWS, load
from podwire.trace.participants import in_order
from podwire.trace.phases import parts, phases
from podwire.trace.plain_text import cut, plain
from podwire.trace.pod_trace import Arrow, PodTrace, Turn, moments, shorten
from podwire.trace.record import Record
from podwire.trace.svg import Picture
from podwire.trace.waterfall import waterfall
from podwire.trace.wording import headline, milliseconds

DEFAULT_FLOW = "pod"
MOST_SEGMENTS = 200


def drawn(trace: PodTrace, hidden: Collection[str] = (), flow: str = DEFAULT_FLOW) -> PodTrace:
    """Returns the trace as it is drawn: with notes, without the arrows of hidden participants, and not too long."""
    noted = annotated(trace, load(flow if flow in FLOWS else DEFAULT_FLOW))
    shown = [arrow for arrow in noted.arrows if arrow.caller not in hidden and arrow.callee not in hidden]
    remarks = tuple(remark for remark in noted.remarks if not set(remark.over) <= set(hidden))
    return shorten(replace(noted, arrows=tuple(shown), remarks=remarks))


def start_view(trace: PodTrace, hidden: Collection[str] = ()) -> Mapping[str, Any]:
    picture = Picture(drawn(trace, hidden))
    began = datetime.fromtimestamp(trace.begin, UTC).isoformat(sep=" ", timespec="milliseconds")
    return {
        "pod": trace.pod,
        "key": plain(f"{trace.namespace}/{trace.name}"),
        "headline": plain(headline(trace)),
        "about": plain(f"{began} · {len(trace.arrows)} arrows · trace {trace.pod}"),
        "running": trace.running is not None,
        "participants": [plain(name) for name in participants(trace)],
        "head": picture.head(),
        "pieces": list(picture.pieces()),
        "waterfall": waterfall(trace),
        "phases": [{"name": phase.name, "seconds": phase.seconds} for phase in phases(trace)],
        "parts": [{"name": part.name, "seconds": part.seconds, "calls": part.calls} for part in parts(trace)],
        "failures": [msgspec.to_builtins(failure) for failure in failures(trace)],
        "path": critical_steps(trace),
    }


def participants(trace: PodTrace) -> list[str]:
    return in_order({name for arrow in trace.arrows for name in (arrow.caller, arrow.callee)})


def critical_steps(trace: PodTrace) -> list[Mapping[str, Any]]:
    """Returns the critical path, a line for each segment."""
    return [
        {
            "participant": plain(segment.participant),
            "at": segment.begin - trace.begin,
            "seconds": segment.seconds,
            "then": cut(plain(f"{_sign(segment.arrow)} {segment.arrow.callee}: {segment.arrow.label}"), 140),
            "id": segment.arrow.id,
        }
        for segment in critical_path(trace)[-MOST_SEGMENTS:]
    ]


def _sign(arrow: Arrow) -> str:
    return "→" if arrow.turn is Turn.CALL else "⇢"


def call_view(
    records: Iterable[Record], trace: PodTrace, id_: str, number: int | None, hidden: Collection[str] = ()
) -> Mapping[str, Any] | None:
    """Returns what a call carried: its request, its reply or error, and the object of an event.

    `number` is the row of the diagram that was chosen: a watch has many events, of which it shows that one.
    """
    own = [record for record in records if record.id == id_]
    begin = next((record for record in own if record.begins), None)
    end = next((record for record in own if record.ends), None)
    event = _event(own, drawn(trace, hidden), number)
    if begin is None and end is None and event is None:
        return None
    some = begin or end or event
    assert some is not None  # noqa: S101 - one of the three
    turned = begin is None and event is None
    caller, callee = (some.callee, some.caller) if turned else (some.caller, some.callee)
    took = end.time - begin.time if begin is not None and end is not None else None
    return {
        "id": id_,
        "title": plain(f"{caller} → {callee}"),
        "method": plain(some.method),
        "node": plain(some.node),
        "at": some.time - trace.begin,
        "took": milliseconds(took) if took is not None else "",
        "outcome": plain(end.outcome) if end is not None else "" if event is not None else "open",
        "request": begin.detail if begin is not None and event is None else None,
        "reply": end.detail if end is not None and event is None else None,
        "event": event.detail if event is not None else None,
    }


def _event(own: Iterable[Record], trace: PodTrace, number: int | None) -> Record | None:
    rows = moments(trace)
    row = rows[number] if number is not None and 0 <= number < len(rows) else None
    events = [record for record in own if record.is_event]
    if not isinstance(row, Arrow) or row.turn is not Turn.EVENT:
        return None
    return next((record for record in events if record.time == row.time), None)
