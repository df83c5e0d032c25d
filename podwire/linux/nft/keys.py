"""The bytes of nft keys and data: addresses, ports, protocols, names, joined as nft joins them. No I/O."""

import errno

from podwire.linux.errors import Refused
from podwire.linux.values import IP

PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132}
_COMMENT = 0
_LONGEST_COMMENT = 127


def address(ip: IP) -> bytes:
    """ipv4_addr, ipv6_addr."""
    return ip.packed


def port(number: int) -> bytes:
    """inet_service."""
    return number.to_bytes(2, "big")


def protocol(name: str) -> bytes:
    """inet_proto."""
    return bytes((PROTOCOLS[name],))


def mac(address: str) -> bytes:
    """ether_addr."""
    return bytes.fromhex(address.replace(":", ""))


def interface(name: str) -> bytes:
    """ifname."""
    return name.encode().ljust(16, b"\0")


def joined(*fields: bytes) -> bytes:
    """`a . b . c`: each field fills whole words. A single field stands as it is."""
    if len(fields) == 1:
        return fields[0]
    return b"".join(field + b"\0" * (-len(field) % 4) for field in fields)


def comment(text: str) -> bytes:
    """An element's user data, in the form in which nft shows it as a comment."""
    packed = text.encode() + b"\0"
    if len(packed) > _LONGEST_COMMENT + 1:
        raise Refused(errno.EINVAL, f"tag an element with {text!r}", f"at most {_LONGEST_COMMENT} bytes")
    return bytes((_COMMENT, len(packed))) + packed


def commented(data: bytes) -> str:
    """The comment in user data; empty when there is none."""
    while len(data) >= 2:
        kind, length = data[0], data[1]
        if kind == _COMMENT:
            return data[2 : 2 + length].rstrip(b"\0").decode("utf-8", "replace")
        data = data[2 + length :]
    return ""
