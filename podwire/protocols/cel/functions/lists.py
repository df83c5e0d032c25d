"""The lists library: sums, extremes, order and places."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from podwire.protocols.cel.types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, STRING, TIMESTAMP, Function, list_of

_SUMMED = (INT, DOUBLE, DURATION)
_ORDERED = (INT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)


def is_sorted(values: Sequence[Any]) -> bool:
    return all(not after < before for before, after in pairwise(values))


def total(values: Sequence[Any]) -> Any:
    """An empty list has no type to tell which zero it is: it is the number's."""
    if not values:
        return 0
    found = values[0]
    for value in values[1:]:
        found = found + value
    if isinstance(found, int) and not -(2**63) <= found < 2**63:
        raise ValueError("integer overflow")
    return found


def least(values: Sequence[Any]) -> Any:
    if not values:
        raise ValueError("min called on empty list")
    return min(values)


def greatest(values: Sequence[Any]) -> Any:
    if not values:
        raise ValueError("max called on empty list")
    return max(values)


def index_of(values: Sequence[Any], wanted: Any) -> int:
    return next(_places(values, wanted), -1)


def last_index_of(values: Sequence[Any], wanted: Any) -> int:
    return max(_places(values, wanted), default=-1)


def _places(values: Sequence[Any], wanted: Any) -> Iterator[int]:
    """As CEL compares: 1 is 1.0, true is not 1."""
    return (
        index
        for index, value in enumerate(values)
        if value == wanted and isinstance(value, bool) == isinstance(wanted, bool)
    )


FUNCTIONS = (
    *(Function("isSorted", (list_of(element),), BOOL, is_sorted) for element in _ORDERED),
    *(Function("sum", (list_of(element),), element, total) for element in _SUMMED),
    *(Function("min", (list_of(element),), element, least) for element in _ORDERED),
    *(Function("max", (list_of(element),), element, greatest) for element in _ORDERED),
    Function("indexOf", (list_of(DYN), DYN), INT, index_of),
    Function("lastIndexOf", (list_of(DYN), DYN), INT, last_index_of),
)
