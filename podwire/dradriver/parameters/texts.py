"""Texts that mean something: names, addresses, networks. Each is read or refused with a ValueError that says why."""

import ipaddress
import re

from podwire.dradriver.parameters.settings import IP, Interface, Network

LONGEST_NAME = 15
RESERVED_NAMES = ("all", "default", "eth0", "lo")
"""The pod's loopback and first interface, and the names that its sysctls have for no interface in particular."""
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
MAC_PATTERN = r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"
MULTICAST_MAC_PATTERN = r"^[0-9A-Fa-f][13579BDFbdf]"
NO_MAC = "00:00:00:00:00:00"
POOL_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
LONGEST_POOL = 63
FEATURE_PATTERN = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
LONGEST_FLAG = 31
"""The kernel has 32 bytes for one."""

# Why a text is refused; the admission policy says the same.
NO_NAME = f"must be 1 to {LONGEST_NAME} letters, digits, '_', '.' and '-', and not begin with '.' or '-'"
RESERVED = f"is reserved in every pod, as are {', '.join(RESERVED_NAMES)}; take another, such as net1"
NO_LINK = f"must be the name of a link, which has 1 to {LONGEST_NAME} characters"
NO_OCTETS = "must be six octets, such as 02:00:5e:10:00:01"
MULTICAST_MAC = "is a multicast address; the first octet of an interface's own is even"
NO_MAC_ADDRESS = "is not an address; leave the field out to have one chosen"
NO_ADDRESS = "must be an IP address, such as 192.0.2.1 or 2001:db8::1, without a prefix"
NO_PEER = "must be an IP address, of a host or of a multicast group"
NOBODY = "is not another host or a multicast group"
NO_INTERFACE = "must be an address with a prefix, such as 192.0.2.1/24 or 2001:db8::1/64"
WHOLE_INTERNET = "has the whole internet in its prefix; say the length of its own network"
NO_HOST_HAS = "is the first or last address of its network, which no host has"
NO_NETWORK = "must be a network, such as 192.0.2.0/24, 2001:db8::/32 or 0.0.0.0/0"
BEYOND = "has bits beyond its prefix"
NOT_ROUTED = "is of multicast or of the loopback, where no route leads"
NOT_ONE_HOST = "is not the address of one host: neither multicast, loopback, 0 nor broadcast can be had"
NO_POOL = f"must be the name of a pool: 1 to {LONGEST_POOL} lowercase letters, digits, '-' and '.'"
NO_FEATURE = "must be a feature as `ethtool -k` names it, such as tx-tcp-segmentation or tso"
NO_FLAG = f"must be a flag as `ethtool --show-priv-flags` names it, 1 to {LONGEST_FLAG} characters"

_LENGTH = re.compile(r"/(0|[1-9][0-9]{0,2})$")
_NAME, _MAC, _POOL, _FEATURE = (
    re.compile(pattern) for pattern in (NAME_PATTERN, MAC_PATTERN, POOL_PATTERN, FEATURE_PATTERN)
)


def interface_name(text: str) -> str:
    if not _NAME.fullmatch(text) or len(text) > LONGEST_NAME:
        raise ValueError(NO_NAME)
    if text in RESERVED_NAMES:
        raise ValueError(RESERVED)
    return text


def host_name(text: str) -> str:
    """Of a link on the host, where the pod's reserved names mean nothing."""
    if not _NAME.fullmatch(text) or len(text) > LONGEST_NAME:
        raise ValueError(NO_LINK)
    return text


def mac(text: str) -> str:
    if not _MAC.fullmatch(text):
        raise ValueError(NO_OCTETS)
    if int(text[1], 16) & 1:
        raise ValueError(MULTICAST_MAC)
    if text == NO_MAC:
        raise ValueError(NO_MAC_ADDRESS)
    return text.lower()


def address(text: str) -> IP:
    """Of one host, without a prefix."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(NO_ADDRESS) from None
    _unicast(found, text)
    return found


def peer(text: str) -> IP:
    """Where packets are sent to: a host or a group of them."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(NO_PEER) from None
    if found.is_unspecified or found.is_loopback:
        raise ValueError(NOBODY)
    _plain(found, text)
    return found


def interface(text: str) -> Interface:
    """An address with the length of its network's prefix."""
    found = _prefixed(text, NO_INTERFACE)
    _unicast(found.ip, text)
    network = found.network
    if network.prefixlen == 0:
        raise ValueError(WHOLE_INTERNET)
    if found.version == 4 and network.prefixlen < 31 and found.ip in (network[0], network[-1]):
        raise ValueError(NO_HOST_HAS)
    return found


def network(text: str) -> Network:
    """A network by its first address."""
    found = _prefixed(text, NO_NETWORK)
    _plain(found.ip, text)
    if found.ip != found.network.network_address:
        raise ValueError(f"{BEYOND}; the network is {found.network}")
    return found.network


def destination(text: str) -> Network:
    """A network that routes can lead to."""
    found = network(text)
    if found.prefixlen and (found.is_multicast or found.is_loopback):
        raise ValueError(NOT_ROUTED)
    return found


def pool(text: str) -> str:
    """Empty for none."""
    if text and (not _POOL.fullmatch(text) or len(text) > LONGEST_POOL):
        raise ValueError(NO_POOL)
    return text


def feature(text: str) -> str:
    if not _FEATURE.fullmatch(text) or len(text) > LONGEST_FLAG:
        raise ValueError(NO_FEATURE)
    return text


def private_flag(text: str) -> str:
    if not 0 < len(text) <= LONGEST_FLAG or not text.isprintable() or not text.isascii():
        raise ValueError(NO_FLAG)
    return text


def _prefixed(text: str, wanted: str) -> Interface:
    """Python reads netmasks and lengths such as /024 too; nobody else does."""
    if not _LENGTH.search(text):
        raise ValueError(wanted)
    try:
        return ipaddress.ip_interface(text)
    except ValueError:
        raise ValueError(wanted) from None


def _unicast(found: IP, text: str) -> None:
    _plain(found, text)
    if found.is_multicast or found.is_unspecified or found.is_loopback or str(found) == "255.255.255.255":
        raise ValueError(NOT_ONE_HOST)


def _plain(found: IP, text: str) -> None:
    """Zones and addresses of one family inside the other are read by Python, and by nobody else in the same way."""
    if "%" in text or getattr(found, "ipv4_mapped", None) is not None:
        raise ValueError("must be a plain address, without a zone, and IPv4 as such")
