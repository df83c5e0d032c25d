"""Port spans and address ranges: joined, cut, never overlapping, as the kernel's interval sets require. Pure."""

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network
from itertools import pairwise
from typing import NamedTuple

Network = IPv4Network | IPv6Network
LAST_PORT = 65535


class Span(NamedTuple):
    """A range of ports of one protocol (by number)."""

    protocol: int
    first: int
    last: int


Spans = frozenset[Span]
EVERYTHING: Spans = frozenset({Span(0, 0, 0)})
"""Any protocol and port, ICMP too."""
NOTHING: Spans = frozenset()


class Range(NamedTuple):
    """A range of addresses, as integers."""

    first: int
    last: int


def whole(protocol: int) -> Span:
    return Span(protocol, 0, LAST_PORT)


def joined(parts: Iterable[Spans]) -> Spans:
    """The union, with the fewest possible spans."""
    every: set[Span] = set()
    for part in parts:
        if part == EVERYTHING:
            return EVERYTHING
        every |= part
    spans: list[Span] = []
    for span in sorted(every):
        if spans and spans[-1].protocol == span.protocol and span.first <= spans[-1].last + 1:
            spans[-1] = spans[-1]._replace(last=max(spans[-1].last, span.last))
        else:
            spans.append(span)
    return frozenset(spans)


def partition(spans: Iterable[Span]) -> list[Span]:
    """Splits overlapping spans into disjoint ones; each given span is a sequence of them."""
    given = set(spans)
    parts = []
    for protocol in {span.protocol for span in given}:
        own = [span for span in given if span.protocol == protocol]
        edges = sorted({span.first for span in own} | {span.last + 1 for span in own})
        for first, after in pairwise(edges):
            if any(span.first <= first and after - 1 <= span.last for span in own):
                parts.append(Span(protocol, first, after - 1))
    return sorted(parts)


def cut(network: Network, excepts: Iterable[Network]) -> list[Range]:
    """A network without some parts of it, as ranges."""
    left = [_range(network)]
    for range_ in sorted(map(_range, excepts)):
        *done, rest = left or [Range(1, 0)]
        left = [*done, *(part for part in _without(rest, range_) if part.first <= part.last)]
        if not left:
            break
    return left


def _without(whole_: Range, hole: Range) -> tuple[Range, ...]:
    if hole.last < whole_.first or hole.first > whole_.last:
        return (whole_,)
    return Range(whole_.first, hole.first - 1), Range(hole.last + 1, whole_.last)


def _range(network: Network) -> Range:
    return Range(int(network.network_address), int(network.broadcast_address))


def layered(parts: Iterable[tuple[Range, Spans]]) -> Mapping[Range, Spans]:
    """Splits overlapping ranges into disjoint ones, each with everything that is allowed there."""
    given = [part for part in parts if part[1]]
    edges = sorted({range_.first for range_, _ in given} | {range_.last + 1 for range_, _ in given})
    disjoint: dict[Range, Spans] = {}
    before: tuple[Range, Spans] | None = None
    for first, after in pairwise(edges):
        here = joined(spans for range_, spans in given if range_.first <= first and after - 1 <= range_.last)
        if before is not None and before[1] == here and before[0].last + 1 == first:
            del disjoint[before[0]]
            first = before[0].first  # noqa: PLW2901 - the neighbour grows
        before = Range(first, after - 1), here
        if here:
            disjoint[before[0]] = here
        else:
            before = None
    return disjoint
