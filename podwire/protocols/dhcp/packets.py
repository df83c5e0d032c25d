"""Packets of a client without an address: Ethernet, IPv4, UDP; and ARP, to detect duplicate addresses."""

from ipaddress import IPv4Address
from struct import Struct
from typing import Any, NamedTuple

from podwire.protocols.dhcp.options import Malformed

ETHERNET_BROADCAST = b"\xff" * 6
IPV4, ARP = 0x0800, 0x0806

_ETHERNET = Struct("!6s6sH")
_IP = Struct("!BBHHHBBH4s4s")
_UDP = Struct("!HHHH")
_PSEUDO = Struct("!4s4sxBH")
_ARP = Struct("!HHBBH6s4s6s4s")
_UDP_PROTOCOL, _TTL = 17, 64
_FRAGMENT = 0x3FFF
"""Offset, and whether there is more; not the bit that forbids to cut."""
_ASKS = 1
_NOBODY = bytes(6)


class Datagram(NamedTuple):
    """A UDP datagram and who sent it to whom."""

    source: IPv4Address
    source_port: int
    target: IPv4Address
    target_port: int
    data: bytes
    source_mac: bytes = _NOBODY
    target_mac: bytes = ETHERNET_BROADCAST


class Arp(NamedTuple):
    asks: bool
    sender_mac: bytes
    sender: IPv4Address
    target: IPv4Address
    target_mac: bytes = _NOBODY


def checksum(data: bytes) -> int:
    """Of the internet (RFC 1071); 0 over what contains a right one."""
    padded = data + b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(padded[at : at + 2]) for at in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def encode(datagram: Datagram) -> bytes:
    source, target = datagram.source.packed, datagram.target.packed
    length = _UDP.size + len(datagram.data)
    udp = _UDP.pack(datagram.source_port, datagram.target_port, length, 0) + datagram.data
    summed = checksum(_PSEUDO.pack(source, target, _UDP_PROTOCOL, length) + udp) or 0xFFFF  # 0 would say: none
    udp = udp[:6] + summed.to_bytes(2) + udp[8:]
    ip = _IP.pack(0x45, 0, _IP.size + length, 0, 0, _TTL, _UDP_PROTOCOL, 0, source, target)
    ip = ip[:10] + checksum(ip).to_bytes(2) + ip[12:]
    return _ETHERNET.pack(datagram.target_mac, datagram.source_mac, IPV4) + ip + udp


def decode(frame: bytes, *, checksummed: bool = True) -> Datagram:
    """Malformed for anything else, and for pieces of a datagram.

    A frame that never saw a wire may not be `checksummed` yet: cards do that, and between two ends of a veth there is
    none.
    """
    target_mac, source_mac, kind = _unpacked(_ETHERNET, frame, 0)
    version, _, total, _, fragment, _, protocol, _, source, target = _unpacked(_IP, frame, _ETHERNET.size)
    ip_size = (version & 0x0F) * 4
    packet = frame[_ETHERNET.size : _ETHERNET.size + total]
    if kind != IPV4 or version >> 4 != 4 or ip_size < _IP.size or protocol != _UDP_PROTOCOL or fragment & _FRAGMENT:
        raise Malformed("no whole UDP datagram")
    source_port, target_port, length, summed = _unpacked(_UDP, packet, ip_size)
    udp = packet[ip_size : ip_size + length]
    if len(packet) < total or length < _UDP.size or len(udp) < length:
        raise Malformed("a datagram is cut off")
    if checksum(packet[:ip_size]):
        raise Malformed("wrong checksum of an IP header")
    if checksummed and summed and checksum(_PSEUDO.pack(source, target, _UDP_PROTOCOL, length) + udp):
        raise Malformed("wrong checksum of a datagram")
    return Datagram(
        IPv4Address(source), source_port, IPv4Address(target), target_port, udp[_UDP.size :], source_mac, target_mac
    )


def encode_arp(arp: Arp, to: bytes = ETHERNET_BROADCAST) -> bytes:
    verb = _ASKS if arp.asks else 2
    body = _ARP.pack(
        1, IPV4, 6, 4, verb, arp.sender_mac, arp.sender.packed, arp.target_mac, arp.target.packed
    )  # fmt: skip
    return _ETHERNET.pack(to, arp.sender_mac, ARP) + body


def decode_arp(frame: bytes) -> Arp:
    *_, kind = _unpacked(_ETHERNET, frame, 0)
    hardware, protocol, hlen, plen, verb, sender_mac, sender, target_mac, target = _unpacked(
        _ARP, frame, _ETHERNET.size
    )
    if kind != ARP or (hardware, protocol, hlen, plen) != (1, IPV4, 6, 4) or verb not in (1, 2):
        raise Malformed("no ARP for IPv4")
    return Arp(verb == _ASKS, sender_mac, IPv4Address(sender), IPv4Address(target), target_mac)


def probe(mac: bytes, address: IPv4Address) -> bytes:
    """Asks whose an address is without claiming it (RFC 5227)."""
    return encode_arp(Arp(asks=True, sender_mac=mac, sender=IPv4Address(0), target=address))


def is_taken(heard: Arp, mac: bytes, address: IPv4Address) -> bool:
    """Whether somebody else has the address, or is about to take it."""
    probes = heard.asks and heard.sender == IPv4Address(0) and heard.target == address
    return heard.sender_mac != mac and (heard.sender == address or probes)


def _unpacked(form: Struct, data: bytes, at: int) -> tuple[Any, ...]:
    if len(data) < at + form.size:
        raise Malformed("a frame is cut off")
    return form.unpack_from(data, at)
