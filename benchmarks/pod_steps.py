"""Splits the time of a start into steps, from its trace. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from podwire.trace.participants import API_SERVER, CNI_PLUGIN, KUBELET, RUNTIME
from podwire.trace.pod_trace import Arrow, Turn

RUN, CREATE, START = "RunPodSandbox", "CreateContainer", "StartContainer"


@dataclass(frozen=True, slots=True)
class Step:
    value: float
    unit: str


def steps(arrows: Sequence[Arrow]) -> dict[str, Step]:
    """Milliseconds of what came one after the other, of what was within that, and how much was asked.

    Empty when the story is not whole.
    """
    calls = [arrow for arrow in arrows if arrow.turn is Turn.CALL and arrow.took is not None]
    try:
        post = _first(calls, API_SERVER, "POST", "/pods")
        bind = _first(calls, API_SERVER, "POST", "/binding")
        run, create, start = [_first(calls, RUNTIME, method) for method in (RUN, CREATE, START)]
        report = next(call for call in calls if call.method.startswith("PATCH") and call.time > _end(start))
    except StopIteration:
        return {}
    marks = {
        "POST → binding (API server, scheduler)": (post.time, bind.time),
        f"binding → {RUN} (API server, kubelet)": (bind.time, run.time),
        RUN: (run.time, _end(run)),
        f"{RUN} → {CREATE} (kubelet)": (_end(run), create.time),
        CREATE: (create.time, _end(create)),
        f"{CREATE} → {START} (kubelet)": (_end(create), start.time),
        START: (start.time, _end(start)),
        f"{START} → reported (kubelet)": (_end(start), report.time),
        "reported (API server)": (report.time, _end(report)),
    }
    measured = {what: Step((end - begin) * 1e3, " ms") for what, (begin, end) in marks.items()}
    before = [call for call in calls if call.time < _end(report)]
    measured[f"CNI plugins, within {RUN}"] = _sum(before, CNI_PLUGIN)
    measured[f"crun, within {START}"] = _sum([call for call in before if call.caller == RUNTIME], RUNTIME)
    measured["requests to the API server"] = _count([call for call in before if call.time >= post.time], API_SERVER)
    measured["calls of the runtime"] = _count([call for call in before if call.caller == KUBELET], RUNTIME)
    return measured


def average(pods: Sequence[Mapping[str, Step]]) -> dict[str, Step]:
    """The median of each step."""
    names = pods[0] if pods else {}
    return {name: Step(statistics.median(pod[name].value for pod in pods), names[name].unit) for name in names}


def _first(calls: Sequence[Arrow], callee: str, method: str, ending: str = "") -> Arrow:
    return next(
        call
        for call in calls
        if call.callee == callee and call.method.startswith(method) and call.method.endswith(ending)
    )


def _end(call: Arrow) -> float:
    return call.time + (call.took or 0.0)


def _sum(calls: Sequence[Arrow], callee: str) -> Step:
    return Step(sum((call.took or 0.0) * 1e3 for call in calls if call.callee == callee), " ms")


def _count(calls: Sequence[Arrow], callee: str) -> Step:
    return Step(float(sum(call.callee == callee for call in calls)), "")
