"""Address ranges of host-local's configuration, and the order in which addresses are leased. Pure."""

from collections.abc import Iterator
from ipaddress import ip_interface, ip_network
from itertools import combinations, product
from typing import NamedTuple

from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Address, Interface, Network, Object, address, network, taken_list

_SMALLEST = {4: 30, 6: 126}
_FLAT = "ipam"
"""Where the keys of a single range are."""


class Range(NamedTuple):
    """Consecutive addresses of a subnet."""

    subnet: Network
    first: Address
    last: Address
    gateway: Address

    def interface(self, ip: Address) -> Interface:
        """Returns an address of the range with the subnet's prefix length."""
        return ip_interface((ip, self.subnet.prefixlen))

    def has(self, ip: Address) -> bool:
        return ip.version == self.first.version and int(self.first) <= int(ip) <= int(self.last)


RangeSet = tuple[Range, ...]
"""A pool: an attachment gets one address of each."""


def parse_sets(config: Object, capability: list[object] | None = None) -> tuple[RangeSet, ...]:
    """Returns the range sets of the capability, of the flat keys, and of `ranges`, in this order."""
    given: list[tuple[object, str]] = [
        (raw, f"runtimeConfig.ipRanges[{index}]") for index, raw in enumerate(capability or ())
    ]
    given += [([config], _FLAT)] if config.get("subnet") else []
    listed = taken_list(config, "ranges", list, "ipam.")
    given += [(raw, f"ipam.ranges[{index}]") for index, raw in enumerate(listed)]
    if not given:
        raise CniError(Code.BAD_CONFIG, "no IP ranges specified", "ipam: needs subnet or ranges")
    sets = [_parse_numbered(number, raw, where) for number, (raw, where) in enumerate(given)]
    _check_sets(sets)
    excluded = _parse_excluded(config)
    return tuple(_without(ranges, excluded) for ranges in sets)


def _parse_excluded(config: Object) -> list[Network]:
    """Returns the addresses and networks of `exclude`."""
    excluded = []
    for index, text in enumerate(taken_list(config, "exclude", str, "ipam.")):
        where = f"ipam.exclude[{index}]"
        excluded.append(network(text, where) if "/" in text else ip_network(address(text, where)))
    return excluded


def _without(ranges: RangeSet, excluded: list[Network]) -> RangeSet:
    """Cuts excluded networks out of a set, without iterating over addresses: there may be 2 to the 64th."""
    left = list(ranges)
    for away in excluded:
        left = [piece for part in left for piece in _cut(part, away)]
    if not left:
        raise CniError(Code.BAD_CONFIG, f"ipam.exclude: nothing is left of {describe(ranges)}")
    return tuple(left)


def _cut(part: Range, away: Network) -> list[Range]:
    first, last = away.network_address, away.broadcast_address
    if away.version != part.first.version or int(part.last) < int(first) or int(last) < int(part.first):
        return [part]
    below = [part._replace(last=first - 1)] if int(part.first) < int(first) else []
    return below + ([part._replace(first=last + 1)] if int(last) < int(part.last) else [])


def _parse_numbered(number: int, value: object, where: str) -> RangeSet:
    """Errors are in the words of the reference plugin, which numbers the sets of all sources."""
    try:
        return _parse_set(value, where)
    except CniError as error:
        message = f"invalid range set {number}: {error.msg}"
        raise CniError(error.code, message, error.details or error.msg) from error


def _parse_set(value: object, where: str) -> RangeSet:
    ranges = tuple(
        parse_range(raw, f"{where}." if where == _FLAT else f"{where}[{index}].")
        for index, raw in enumerate(taken_list({where: value}, where, dict))
    )
    if not ranges:
        raise CniError(Code.BAD_CONFIG, "empty range set", f"{where}: empty")
    if len({part.subnet.version for part in ranges}) > 1:
        raise CniError(Code.BAD_CONFIG, "mixed address families", f"{where}: IPv4 and IPv6 in one set")
    for one, other in combinations(ranges, 2):
        if _overlap(one, other):
            message = f"subnets {words((one,))} and {words((other,))} overlap"
            raise CniError(Code.BAD_CONFIG, message, f"{where}: ranges overlap")
    return ranges


def parse_range(value: Object, where: str) -> Range:
    subnet = network(value.get("subnet"), f"{where}subnet", strict=True)
    if subnet.prefixlen > _SMALLEST[subnet.version]:
        raise CniError(Code.BAD_CONFIG, f"Network {subnet} too small to allocate from", f"{where}subnet: too small")
    base, end = subnet.network_address, subnet.broadcast_address
    lowest, highest = base + 1, end - 1 if subnet.version == 4 else end
    gateway = _inside(value, "gateway", subnet, base + 1, where)
    first = _inside(value, "rangeStart", subnet, lowest, where)
    last = _inside(value, "rangeEnd", subnet, highest, where)
    if not int(lowest) <= int(first) <= int(last) <= int(highest):
        details = f"{where}rangeStart, rangeEnd: {first} to {last} is not within {subnet}"
        raise CniError(Code.BAD_CONFIG, f"RangeStart {first} not in network {subnet}", details)
    return Range(subnet, first, last, gateway)


def _inside(value: Object, key: str, subnet: Network, default: Address, where: str) -> Address:
    if not value.get(key):
        return default
    given = address(value[key], f"{where}{key}")
    if given not in subnet:
        message = f"{key[0].upper()}{key[1:]} {given} not in network {subnet}"
        raise CniError(Code.BAD_CONFIG, message, f"{where}{key}: {given} is not in {subnet}")
    return given


def _check_sets(sets: list[RangeSet]) -> None:
    """Raises CniError for an address in two sets: it could be leased twice."""
    for (one, ranges), (other, others) in combinations(enumerate(sets), 2):
        for first, second in product(ranges, others):
            if _overlap(first, second):
                both = f"ipam: ranges overlap: {words((first,))} and {words((second,))}"
                raise CniError(Code.BAD_CONFIG, f"range set {one} overlaps with {other}", both)


def _overlap(one: Range, other: Range) -> bool:
    return one.has(other.first) or other.has(one.first)


def find_range(ranges: RangeSet, ip: Address) -> Range | None:
    """Returns the range of a set that an address can be leased from; a gateway cannot be leased."""
    return next((part for part in ranges if part.has(ip) and ip != part.gateway), None)


def after(ranges: RangeSet, last: Address | None) -> Iterator[Address]:
    """Yields every address that can be leased, once, beginning behind the one that was leased last.

    So a released address stays unused for as long as possible, and its next owner is not mistaken for the previous one.
    """
    index = next((number for number, part in enumerate(ranges) if last is not None and part.has(last)), None)
    if index is None or last is None:
        for part in ranges:
            yield from _between(part, int(part.first), int(part.last))
        return
    current = ranges[index]
    yield from _between(current, int(last) + 1, int(current.last))
    for part in ranges[index + 1 :] + ranges[:index]:
        yield from _between(part, int(part.first), int(part.last))
    yield from _between(current, int(current.first), int(last))


def _between(part: Range, first: int, last: int) -> Iterator[Address]:
    kind, gateway = type(part.first), int(part.gateway)
    for number in range(first, last + 1):
        if number != gateway:
            yield kind(number)


def size(ranges: RangeSet) -> int:
    """Returns the number of addresses that can be leased."""
    return sum(int(part.last) - int(part.first) + 1 - part.has(part.gateway) for part in ranges)


def describe(ranges: RangeSet) -> str:
    return ", ".join(f"{part.first} to {part.last}" for part in ranges)


def words(ranges: RangeSet) -> str:
    """Formats a set as the reference plugin does."""
    return ",".join(f"{part.first}-{part.last}" for part in ranges)
