"""What every drawing says in the same words: of whom it is, when and how long, what is not there. Pure."""

from datetime import UTC, datetime

from podwire.trace.pod_trace import Arrow, Cut, Gap, PodTrace, Turn


def headline(trace: PodTrace) -> str:
    """A story in one line."""
    state = f"Running after {milliseconds(trace.took)}" if trace.took is not None else "not Running yet"
    return f"pod {trace.namespace}/{trace.name}: {state}"


def lost(told: Gap | Cut) -> str:
    if isinstance(told, Cut):
        return f"{told.arrows} arrows are left out here; --format json has them all"
    return f"{told.lost} record{'s' if told.lost > 1 else ''} of {told.sender} lost here"


def times(arrow: Arrow, begin: float) -> str:
    """When, and on the reply how long it took; in columns."""
    took = milliseconds(arrow.took) if arrow.turn is Turn.REPLY and arrow.took is not None else ""
    return f"{moment(arrow, begin):>10} {took:>9}"


def moment(arrow: Arrow, begin: float) -> str:
    """What began before anybody asked for the pod has no time in its story."""
    return "before" if arrow.time < begin else f"{(arrow.time - begin) * 1000:+.1f} ms"


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3] + "Z"


def day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
