"""Which addresses there are to give, as host-local's configuration says. Pure."""

from collections.abc import Iterator
from ipaddress import ip_interface, ip_network
from itertools import pairwise
from typing import NamedTuple

from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Address, Interface, Network, Object, address, network, taken_list

_SMALLEST = {4: 30, 6: 126}


class Range(NamedTuple):
    """A part of a subnet, from its first to its last address."""

    subnet: Network
    first: Address
    last: Address
    gateway: Address

    def interface(self, ip: Address) -> Interface:
        """An address of the range as a link gets it."""
        return ip_interface((ip, self.subnet.prefixlen))

    def has(self, ip: Address) -> bool:
        return ip.version == self.first.version and int(self.first) <= int(ip) <= int(self.last)


RangeSet = tuple[Range, ...]
"""A pool: a pod gets one address of it."""


def parse_sets(config: Object, capability: list[object] | None = None) -> tuple[RangeSet, ...]:
    """The sets of an `ipam` object: those of the capability, the flat one, those of `ranges`."""
    sets = [_parse_set(each, f"runtimeConfig.ipRanges[{at}]") for at, each in enumerate(capability or ())]
    sets += [(parse_range(config, "ipam."),)] if config.get("subnet") else []
    listed = taken_list(config, "ranges", list, "ipam.")
    sets += [_parse_set(each, f"ipam.ranges[{at}]") for at, each in enumerate(listed)]
    if not sets:
        raise CniError(Code.BAD_CONFIG, "ipam: neither subnet nor ranges")
    _check_apart([each for set_ in sets for each in set_])
    excluded = _parse_excluded(config)
    return tuple(_without(each, excluded) for each in sets)


def _parse_excluded(config: Object) -> list[Network]:
    """Addresses and networks that belong to others: `exclude`."""
    found = []
    for at, each in enumerate(taken_list(config, "exclude", str, "ipam.")):
        where = f"ipam.exclude[{at}]"
        found.append(network(each, where) if "/" in each else ip_network(address(each, where)))
    return found


def _without(ranges: RangeSet, excluded: list[Network]) -> RangeSet:
    """What is left of a set. Nobody counts addresses for that: there may be 2 to the 64th."""
    left = list(ranges)
    for each in excluded:
        left = [piece for part in left for piece in _cut(part, each)]
    if not left:
        raise CniError(Code.BAD_CONFIG, f"ipam.exclude: nothing is left of {told(ranges)}")
    return tuple(left)


def _cut(part: Range, away: Network) -> list[Range]:
    first, last = away.network_address, away.broadcast_address
    if away.version != part.first.version or int(part.last) < int(first) or int(last) < int(part.first):
        return [part]
    below = [part._replace(last=first - 1)] if int(part.first) < int(first) else []
    return below + ([part._replace(first=last + 1)] if int(last) < int(part.last) else [])


def _parse_set(value: object, where: str) -> RangeSet:
    ranges = tuple(
        parse_range(each, f"{where}[{at}].") for at, each in enumerate(taken_list({where: value}, where, dict))
    )
    if not ranges:
        raise CniError(Code.BAD_CONFIG, f"{where}: empty")
    if len({each.subnet.version for each in ranges}) > 1:
        raise CniError(Code.BAD_CONFIG, f"{where}: IPv4 and IPv6 in one set")
    return ranges


def parse_range(value: Object, where: str) -> Range:
    subnet = network(value.get("subnet"), f"{where}subnet", strict=True)
    if subnet.prefixlen > _SMALLEST[subnet.version]:
        raise CniError(Code.BAD_CONFIG, f"{where}subnet: {subnet} is too small to give addresses from")
    base, end = subnet.network_address, subnet.broadcast_address
    lowest, highest = base + 1, end - 1 if subnet.version == 4 else end
    gateway = _inside(value, "gateway", subnet, base + 1, where)
    first = _inside(value, "rangeStart", subnet, lowest, where)
    last = _inside(value, "rangeEnd", subnet, highest, where)
    if not int(lowest) <= int(first) <= int(last) <= int(highest):
        raise CniError(Code.BAD_CONFIG, f"{where}rangeStart, rangeEnd: {first} to {last} is no part of {subnet}")
    return Range(subnet, first, last, gateway)


def _inside(value: Object, key: str, subnet: Network, default: Address, where: str) -> Address:
    if not value.get(key):
        return default
    told = address(value[key], f"{where}{key}")
    if told not in subnet:
        raise CniError(Code.BAD_CONFIG, f"{where}{key}: {told} is not in {subnet}")
    return told


def _check_apart(ranges: list[Range]) -> None:
    """No address may be in two ranges: it could be given twice."""
    ordered = sorted(ranges, key=lambda each: (each.first.version, int(each.first)))
    for one, other in pairwise(ordered):
        if one.has(other.first):
            told = f"{one.first} to {one.last} and {other.first} to {other.last}"
            raise CniError(Code.BAD_CONFIG, f"ipam: ranges overlap: {told}")


def found(ranges: RangeSet, ip: Address) -> Range | None:
    """The range of a set that an address may be given from; its gateway never is."""
    return next((each for each in ranges if each.has(ip) and ip != each.gateway), None)


def after(ranges: RangeSet, last: Address | None) -> Iterator[Address]:
    """Every address that may be given, once, beginning behind the one that was given last.

    So an address that was given back rests for as long as possible, and nobody mistakes its new owner for the old.
    """
    at = next((number for number, each in enumerate(ranges) if last is not None and each.has(last)), None)
    if at is None or last is None:
        for each in ranges:
            yield from _between(each, int(each.first), int(each.last))
        return
    begun = ranges[at]
    yield from _between(begun, int(last) + 1, int(begun.last))
    for each in ranges[at + 1 :] + ranges[:at]:
        yield from _between(each, int(each.first), int(each.last))
    yield from _between(begun, int(begun.first), int(last))


def _between(part: Range, first: int, last: int) -> Iterator[Address]:
    kind, gateway = type(part.first), int(part.gateway)
    for number in range(first, last + 1):
        if number != gateway:
            yield kind(number)


def size(ranges: RangeSet) -> int:
    """How many addresses may be given."""
    return sum(int(each.last) - int(each.first) + 1 - each.has(each.gateway) for each in ranges)


def told(ranges: RangeSet) -> str:
    return ", ".join(f"{each.first} to {each.last}" for each in ranges)
