"""A story that is too long to be drawn, with its middle left out by name. Pure."""

from dataclasses import replace

from podwire.trace.pod_trace import Cut, PodTrace

MOST_ARROWS = 2000
"""That are drawn; a start has about a hundred."""


def cut_short(trace: PodTrace, most: int = MOST_ARROWS) -> PodTrace:
    """The story itself if it is not too long; else its beginning, which has the start, and its end."""
    left_out = len(trace.arrows) - most
    if left_out <= 0:
        return trace
    first = most * 3 // 4
    kept = (*trace.arrows[:first], *trace.arrows[first + left_out :])
    return replace(trace, arrows=kept, cuts=(Cut(trace.arrows[first].time, left_out),))
