"""The ip and cidr libraries. Stricter than Python's parser: no zones, no IPv4 within IPv6."""

from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_interface

from podwire.protocols.cel.types import BOOL, CIDR, INT, IP, STRING, Function, Opaque

Address = IPv4Address | IPv6Address
Interface = IPv4Interface | IPv6Interface


REMEMBERED = 4096
"""Texts that are parsed once: a rule asks several times, and the networks of a cluster are few."""


@lru_cache(maxsize=REMEMBERED)
def parse_ip(text: str) -> Address:
    try:
        address = ip_address(text)
    except ValueError as error:
        raise ValueError(f'IP Address "{text}" parse error during conversion from string: {error}') from None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            raise ValueError(f'IP address "{text}" with zone value is not allowed')
        if address.ipv4_mapped is not None:
            raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


@lru_cache(maxsize=REMEMBERED)
def parse_cidr(text: str) -> Interface:
    address, slash, length = text.partition("/")
    words = f'network address parse error during conversion from string: netip.ParsePrefix("{text}")'
    if not slash:
        raise ValueError(f"{words}: no '/'")
    if not length.isascii() or not length.isdigit() or (length.startswith("0") and length != "0"):
        raise ValueError(f'{words}: bad bits after slash: "{length}"')
    parse_ip(address)
    try:
        return ip_interface(text)
    except ValueError:
        raise ValueError(f"{words}: prefix length out of range") from None


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def is_canonical(text: str) -> bool:
    return str(parse_ip(text)) == text


def is_global_unicast(address: Address) -> bool:
    """As Go has it: everything that is neither nothing, nor this host, nor this link, nor a group."""
    broadcast = address == IPv4Address("255.255.255.255")
    special = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not (broadcast or special)


def is_link_local_multicast(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return address.packed[:3] == b"\xe0\x00\x00"
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2


def contains_ip(cidr: Interface, address: Address) -> bool:
    return cidr.version == address.version and address in cidr.network


def contains_cidr(cidr: Interface, other: Interface) -> bool:
    return (
        cidr.version == other.version and other.ip in cidr.network and cidr.network.prefixlen <= other.network.prefixlen
    )


OPAQUE = (
    Opaque(IP, (IPv4Address, IPv6Address), str, ip_address),
    Opaque(CIDR, (IPv4Interface, IPv6Interface), str, ip_interface),
)

FUNCTIONS = (
    Function("ip", (STRING,), IP, parse_ip, member=False),
    Function("isIP", (STRING,), BOOL, lambda text: _parses(parse_ip, text), member=False),
    Function("ip.isCanonical", (STRING,), BOOL, is_canonical, member=False),
    Function("string", (IP,), STRING, str, member=False),
    Function("family", (IP,), INT, lambda address: address.version),
    Function("isUnspecified", (IP,), BOOL, lambda address: address.is_unspecified),
    Function("isLoopback", (IP,), BOOL, lambda address: address.is_loopback),
    Function("isLinkLocalMulticast", (IP,), BOOL, is_link_local_multicast),
    Function("isLinkLocalUnicast", (IP,), BOOL, lambda address: address.is_link_local),
    Function("isGlobalUnicast", (IP,), BOOL, is_global_unicast),
    Function("cidr", (STRING,), CIDR, parse_cidr, member=False),
    Function("isCIDR", (STRING,), BOOL, lambda text: _parses(parse_cidr, text), member=False),
    Function("string", (CIDR,), STRING, str, member=False),
    Function("containsIP", (CIDR, IP), BOOL, contains_ip),
    Function("containsIP", (CIDR, STRING), BOOL, lambda cidr, text: contains_ip(cidr, parse_ip(text))),
    Function("containsCIDR", (CIDR, CIDR), BOOL, contains_cidr),
    Function("containsCIDR", (CIDR, STRING), BOOL, lambda cidr, text: contains_cidr(cidr, parse_cidr(text))),
    Function("ip", (CIDR,), IP, lambda cidr: cidr.ip),
    Function("masked", (CIDR,), CIDR, lambda cidr: ip_interface(cidr.network)),
    Function("prefixLength", (CIDR,), INT, lambda cidr: cidr.network.prefixlen),
)
