"""Phrases that all renderings share: headline, times, gaps. Pure."""

from datetime import UTC, datetime

from podwire.trace.pod_trace import Arrow, Cut, Gap, Pause, PodTrace, Turn


def headline(trace: PodTrace) -> str:
    """Summarizes a trace in one line."""
    state = f"Running after {milliseconds(trace.took)}" if trace.took is not None else "not Running yet"
    return f"pod {trace.namespace}/{trace.name}: {state}"


def lost(gap: Gap | Cut | Pause) -> str:
    if isinstance(gap, Pause):
        return f"{duration(gap.seconds)} without a call{', after a failed one (back-off)' if gap.after_failure else ''}"
    if isinstance(gap, Cut):
        return f"{gap.arrows} arrows are left out here; --format json has them all"
    return f"{gap.lost} record{'s' if gap.lost > 1 else ''} of {gap.sender} lost here"


def times(arrow: Arrow, begin: float) -> str:
    """Returns the time and, for a reply, the duration, in columns."""
    took = milliseconds(arrow.took) if arrow.turn is Turn.REPLY and arrow.took is not None else ""
    return f"{moment(arrow, begin):>10} {took:>9}"


def moment(arrow: Arrow, begin: float) -> str:
    """Returns the time relative to the request; "before" for calls that began earlier."""
    return "before" if arrow.time < begin else f"{(arrow.time - begin) * 1000:+.1f} ms"


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"


def duration(seconds: float) -> str:
    """Returns a longer time in words."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3] + "Z"


def day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
