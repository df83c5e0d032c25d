"""Tells the neighbours on a link that an address is here now: gratuitous ARP (RFC 5227) and unsolicited neighbour
advertisements (RFC 4861, section 7.2.6). The kernel answers questions by itself, but does not tell of a new address.
"""

from ipaddress import IPv6Address
from struct import Struct

from podwire.linux.net.packets import ARP, FrameSocket
from podwire.linux.values import IP

_ETHERNET = Struct("!6s6sH")
_ARP = Struct("!HHBBH6s4s6s4s")
_IPV6 = Struct("!IHBB16s16s")
_ADVERTISEMENT = Struct("!BBHB3x16sBB6s")
_EVERYBODY, _ALL_NODES = b"\xff" * 6, b"\x33\x33\x00\x00\x00\x01"
_IPV6_TYPE, _ICMPV6 = 0x86DD, 58
_OVERRIDE = 0x20


def announce(ifindex: int, address: IP) -> None:
    """Sends one frame on a link. Raises NoSuchLink, or Unreachable while the link is down."""
    socket = FrameSocket(ifindex, ARP)
    try:
        socket.send(frame(socket.mac, address))
    finally:
        socket.close()


def frame(mac: bytes, address: IP) -> bytes:
    """Returns the Ethernet frame that announces an address at a MAC address."""
    if isinstance(address, IPv6Address):
        return _ETHERNET.pack(_ALL_NODES, mac, _IPV6_TYPE) + _advertisement(mac, address.packed)
    own = address.packed
    request = _ARP.pack(1, 0x0800, 6, 4, 1, mac, own, bytes(6), own)
    return _ETHERNET.pack(_EVERYBODY, mac, ARP) + request


def _advertisement(mac: bytes, own: bytes) -> bytes:
    to = IPv6Address("ff02::1").packed
    body = _ADVERTISEMENT.pack(136, 0, 0, _OVERRIDE, own, 2, 1, mac)
    pseudo = own + to + len(body).to_bytes(4, "big") + _ICMPV6.to_bytes(4, "big")
    body = _ADVERTISEMENT.pack(136, 0, _checksum(pseudo + body), _OVERRIDE, own, 2, 1, mac)
    return _IPV6.pack(6 << 28, len(body), _ICMPV6, 255, own, to) + body


def _checksum(data: bytes) -> int:
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
