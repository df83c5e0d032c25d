"""Regions: sets of protocols and ports as one integer, a bit for each, so that ordered rules can be subtracted. Pure.

TCP, UDP and SCTP have 65,536 bits each. All other protocols, ICMP too, share as many: rules know ports of these three
only, so the others are always in a region together.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from podwire.nriplugins.network.policy.policies import PortMatch
from podwire.nriplugins.network.policy.spans import LAST_PORT
from podwire.nriplugins.network.policy.values import PROTOCOL_NAMES, PROTOCOLS, NamedPort

_PORTS = LAST_PORT + 1
_WHOLE = (1 << _PORTS) - 1
_OTHERS = 0
_PLACES = {number: place for place, number in enumerate(PROTOCOLS.values(), 1)}
EVERYTHING = (1 << _PORTS * (1 + len(_PLACES))) - 1
NOTHING = 0
_LAST_PROTOCOL = 255

Region = int


class Area(NamedTuple):
    """A range of protocols, each with the same range of ports."""

    protocol: int
    last_protocol: int
    first: int
    last: int


ANYTHING = Area(0, 0, 0, 0)
"""Every protocol and port, in the form that the rules look up first."""


def region_of(ports: tuple[PortMatch, ...], named: Mapping[NamedPort, int]) -> Region:
    """The ports of a rule; `named` are those of the pod that receives."""
    if not ports:
        return EVERYTHING
    region = NOTHING
    for port in ports:
        if port.port is None:
            first, last = 0, LAST_PORT
        elif isinstance(port.port, int):
            first, last = port.port, port.end or port.port
        else:
            number = named.get((PROTOCOL_NAMES[port.protocol], port.port))
            if number is None:
                continue
            first = last = number
        bits = (1 << last - first + 1) - 1
        region |= bits << _PLACES[port.protocol] * _PORTS + first
    return region


def areas_of(region: Region) -> tuple[Area, ...]:
    """The fewest disjoint areas, for the kernel's sets. Protocol 0 is that of `ANYTHING` and left out elsewhere."""
    if region == EVERYTHING:
        return (ANYTHING,)
    ports = {place: [*_runs(region >> place * _PORTS & _WHOLE)] for place in (_OTHERS, *_PLACES.values())}
    areas: list[Area] = []
    first = 1
    for runs, protocols in groupby(ports[_PLACES.get(number, _OTHERS)] for number in range(1, _LAST_PROTOCOL + 1)):
        last = first + sum(1 for _ in protocols) - 1
        areas += [Area(first, last, *run) for run in runs]
        first = last + 1
    return tuple(areas)


def _runs(bits: int) -> Iterator[tuple[int, int]]:
    """First and last of each row of set bits."""
    start = 0
    while bits:
        skipped = (bits & -bits).bit_length() - 1
        bits, start = bits >> skipped, start + skipped
        length = (~bits & (bits + 1)).bit_length() - 1
        yield start, start + length - 1
        bits, start = bits >> length, start + length
