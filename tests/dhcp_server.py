"""A small DHCP server for tests, with configured answers. The packets are real."""

import asyncio
from ipaddress import IPv4Address
from itertools import groupby

from podwire.linux.net.packets import ARP, IPV4, FrameSocket, index_of
from podwire.protocols.dhcp import messages, options, packets
from podwire.protocols.dhcp.messages import NOWHERE, REPLY, Message, Type
from podwire.protocols.dhcp.options import Malformed

SERVER = IPv4Address("10.77.0.1")
LONG = 30.0
"""Seconds that a test waits for what must come."""


class Server:
    """Gives configured answers; remembers what it received."""

    def __init__(self, netns, link="srv", ip=SERVER):
        self.ip = ip
        self.seconds, self.t1, self.t2 = 3600, None, None
        self.more = {}
        self.silent_to, self.refuses = set(), set()
        self.ignores = lambda _message, _datagram: False
        self.given = {}
        self.heard = []
        self._news = asyncio.Event()
        self._socket = FrameSocket(index_of(link, netns), IPV4, udp_port=67, netns=netns)
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)

    def close(self):
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()

    @property
    def types(self):
        return [each.type for each, _ in self.heard]

    @property
    def story(self):
        """Messages without repetitions: a busy machine makes a client repeat itself."""
        return [kind for kind, _ in groupby(self.types)]

    async def has_heard(self, kind, times=1):
        """Waits for it; the message, and what it came in."""
        async with asyncio.timeout(LONG):
            while self.types.count(kind) < times:
                self._news.clear()
                await self._news.wait()
        return [item for item in self.heard if item[0].type is kind][times - 1]

    def _read(self):
        for frame in self._socket.read():
            try:
                datagram = packets.decode(frame.data, checksummed=frame.checksummed)
                message = messages.decode(datagram.data)
            except Malformed:
                continue
            self.heard.append((message, datagram))
            self._news.set()
            if message.type not in self.silent_to and not self.ignores(message, datagram):
                self._answer(message, datagram)

    def _answer(self, message, datagram):
        who = message.options.get(options.CLIENT_ID, message.mac)
        if message.type is Type.DISCOVER:
            self._say(message, datagram, Type.OFFER, self._choice(who))
        elif message.type is Type.REQUEST:
            named = message.options.get(options.REQUESTED)
            wanted = IPv4Address(named) if named else message.ciaddr
            to_another = message.options.get(options.SERVER, self.ip.packed) != self.ip.packed
            if wanted in self.refuses or wanted != self._choice(who) or to_another:
                self._say(message, datagram, Type.NAK, NOWHERE)
            else:
                self._say(message, datagram, Type.ACK, wanted)
        elif message.type in (Type.RELEASE, Type.DECLINE):
            self.given.pop(who, None)

    def _choice(self, who):
        if who not in self.given:
            free = (SERVER + number for number in range(99, 199))
            self.given[who] = next(item for item in free if item not in {*self.given.values(), *self.refuses})
        return self.given[who]

    def _say(self, message, datagram, kind, ip):
        document = {
            options.TYPE: bytes((kind,)),
            options.SERVER: self.ip.packed,
            options.MASK: bytes((255, 255, 255, 0)),
            options.SECONDS: self.seconds.to_bytes(4),
            **({options.T1: self.t1.to_bytes(4)} if self.t1 else {}),
            **({options.T2: self.t2.to_bytes(4)} if self.t2 else {}),
            **self.more,
        }
        if kind is Type.NAK:
            document = {options.TYPE: bytes((kind,)), options.SERVER: self.ip.packed, options.TEXT: b"not yours"}
        reply = Message(op=REPLY, xid=message.xid, mac=message.mac, yiaddr=ip, options=document)
        self.send(reply, to=datagram.source_mac if not message.broadcast and kind is not Type.NAK else None, ip=ip)

    def send(self, reply, to=None, ip=NOWHERE):
        target = ip if to else messages.EVERYBODY
        self._socket.send(
            packets.encode(
                packets.Datagram(
                    self.ip, 67, target, 68, messages.encode(reply), self._socket.mac, to or packets.ETHERNET_BROADCAST
                )
            )
        )


class Squatter:
    """Somebody who has an address that no server gave it."""

    def __init__(self, netns, ip, link="srv"):
        self._ip = ip
        self._socket = FrameSocket(index_of(link, netns), ARP, netns=netns)
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)

    def close(self):
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()

    def _read(self):
        for frame in self._socket.read():
            arp = packets.decode_arp(frame.data)
            if arp.asks and arp.target == self._ip:
                mine = packets.Arp(False, bytes.fromhex("02deadbeef01"), self._ip, arp.sender, arp.sender_mac)
                self._socket.send(packets.encode_arp(mine, arp.sender_mac))
