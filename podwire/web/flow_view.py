"""A flow as a picture, each line linked to the call that satisfied it in a pod. Pure."""

from collections.abc import Mapping
from typing import Any

from podwire.trace.check import check, matched
from podwire.trace.flow import Flow, Note, Step
from podwire.trace.plain_text import plain
from podwire.trace.pod_trace import Arrow, PodTrace, Remark
from podwire.trace.svg import Picture


def flow_view(flow: Flow, trace: PodTrace | None) -> Mapping[str, Any]:
    """`trace` is the pod whose calls are linked; without one, nothing is."""
    places = {} if trace is None else {id(step): place for step, place, _ in matched(flow, trace.arrows)}
    arrows, remarks, rows = [], [], []
    for number, line in enumerate(flow.lines):
        if isinstance(line, Note):
            remarks.append(Remark(float(number), tuple(line.over), line.note))
            continue
        place = places.get(id(line))
        call = trace.arrows[place] if trace is not None and place is not None else None
        arrows.append(_arrow(line, float(number), call))
        rows.append(_row(line, call, trace))
    picture = Picture(
        PodTrace(
            pod="", namespace="", name=flow.name, begin=0.0, origin=0.0, arrows=tuple(arrows), remarks=tuple(remarks)
        )
    )
    findings = [] if trace is None else check(trace, flow)
    return {
        "name": flow.name,
        "pod": trace.pod if trace is not None else "",
        "key": plain(f"{trace.namespace}/{trace.name}") if trace is not None else "",
        "head": picture.head(),
        "pieces": list(picture.pieces()),
        "rows": rows,
        "findings": [plain(str(finding)) for finding in findings],
    }


def _arrow(step: Step, time: float, call: Arrow | None) -> Arrow:
    """An arrow without a call is drawn as one that is open."""
    took = 0.0 if call is not None else None
    return Arrow(
        time=time,
        caller=step.caller,
        callee=step.callee,
        method=step.call or step.reply or step.event,
        turn=step.turn,
        label=step.label,
        id=call.id if call is not None else "",
        took=took,
    )


def _row(step: Step, call: Arrow | None, trace: PodTrace | None) -> Mapping[str, Any]:
    state = "matched" if call is not None else "optional" if step.need == "optional" else "missing"
    return {
        "arrow": plain(str(step)),
        "state": state if trace is not None else "",
        "id": call.id if call is not None else "",
        "call": plain(f"{call.caller} → {call.callee} {call.label}") if call is not None else "",
        "at": call.time - trace.begin if call is not None and trace is not None else None,
        "why": plain(step.why),
    }
