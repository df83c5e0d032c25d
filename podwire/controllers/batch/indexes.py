"""Sets of completion indexes as sorted, disjoint intervals, as in `completedIndexes` and `failedIndexes`. Pure."""

from bisect import bisect_left
from collections.abc import Iterable

Intervals = tuple[tuple[int, int], ...]
"""First and last index of each run of indexes, in ascending order; neighbouring runs are merged."""


def parse(text: str, completions: int) -> Intervals:
    """Reads `1,3-5,7`. Indexes from `completions` on are dropped; a corrupted interval is ignored."""
    intervals = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if not (_is_number(first) and (not last or _is_number(last))):
            continue
        start = int(first)
        if start >= completions:
            break
        intervals.append((start, min(int(last) if last else start, completions - 1)))
    return union(tuple(interval for interval in intervals if interval[0] <= interval[1]), ())


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


def text_of(intervals: Intervals) -> str:
    """Writes intervals; two neighbours are written as `3,4`, not as `3-4`."""
    parts = []
    for first, last in intervals:
        parts.append(str(first))
        if last == first + 1:
            parts.append(str(last))
        elif last > first:
            parts[-1] = f"{first}-{last}"
    return ",".join(parts)


def of(indexes: Iterable[int]) -> Intervals:
    return union(tuple((index, index) for index in sorted(set(indexes))), ())


def union(one: Intervals, other: Intervals) -> Intervals:
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*one, *other)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def total(intervals: Intervals) -> int:
    return sum(last - first + 1 for first, last in intervals)


def contains(intervals: Intervals, index: int) -> bool:
    place = bisect_left(intervals, index, key=lambda interval: interval[1])
    return place < len(intervals) and intervals[place][0] <= index


def overlap(one: Intervals, other: Intervals) -> int:
    """Returns how many indexes are in both."""
    return total(one) + total(other) - total(union(one, other))


def first_outside(taken: Intervals, count: int, completions: int) -> list[int]:
    """Returns the lowest `count` indexes below `completions` that are not taken."""
    free: list[int] = []
    start = 0
    for first, last in (*taken, (completions, completions)):
        free += range(start, min(first, completions, start + count - len(free)))
        if len(free) >= count:
            break
        start = max(start, last + 1)
    return free
