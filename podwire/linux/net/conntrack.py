"""Connection tracking: deletes the entries of an address before it gets a new owner."""

import errno
from collections.abc import Iterable, Iterator
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import NETFILTER, Netlink
from podwire.linux.net.wire import Request, attribute, nested, u32
from podwire.linux.values import IP, Path

_SUBSYSTEM = 1
_GET, _DELETE, _STATS = (_SUBSYSTEM << 8 | number for number in (1, 2, 5))
_ENTRIES = 1
_FEW = 20_000
_MESSAGE = Struct(">BBH")  # family, version, resource
_FILTERED = 1  # the version of messages whose family counts also when many are deleted
_ORIGINAL, _REPLY, _ID, _FILTER, _TUPLE_IP = 1, 2, 12, 25, 1
_TUPLE_PROTO, _NUMBER, _FROM_PORT, _TO_PORT = 2, 1, 2, 3
_SOURCE, _DESTINATION = {4: 1, 6: 3}, {4: 2, 6: 4}
_FILTER_ORIGINAL, _FILTER_REPLY, _BY_SOURCE = 1, 2, 1
_FAMILY = {4: 2, 6: 10}
_ERRORS: errors.Names = {errno.ENOENT: errors.Missing}


class Translation(NamedTuple):
    """A connection: the address and port that it was made to, and those that answer."""

    address: bytes
    port: int
    answers_address: bytes
    answers_port: int
    identity: bytes


class KernelConntrack:
    def __init__(self, netns: Path | int | None = None) -> None:
        self._netlink = Netlink(netns, protocol=NETFILTER)

    def close(self) -> None:
        self._netlink.close()

    def flush(self, address: IP) -> int:
        """Deletes every connection from or to the address; returns their number."""
        head = _MESSAGE.pack(_FAMILY[address.version], 0, 0)
        return self._forget(head, set(self._found(head, address)), f"forget a connection of {address}")

    def forget(self, address: IP) -> None:
        """Deletes like `flush`, without a count. A kernel from 6.8 filters by itself, in a thirtieth of the time; not
        for IPv6, where its filter is inverted."""
        if address.version == 4:
            head = _MESSAGE.pack(_FAMILY[4], _FILTERED, 0)
            requests = [
                Request(_DELETE, 0, head + _from(address, direction), f"forget connections of {address}", _ERRORS)
                for direction in (_ORIGINAL, _REPLY)
            ]
            with suppress(errors.Unsupported, errors.Refused):
                return self._netlink.do(*requests)
        self.flush(address)
        return None

    def flush_port(self, family: int, protocol: int, port: int) -> int:
        """Deletes every connection to a port on any address of a family (4, 6); returns their number.

        A UDP flow that never pauses would otherwise keep the translation of the time when it began.
        """
        head = _MESSAGE.pack(_FAMILY[family], 0, 0)
        found = set()
        for body in self._netlink.dump(Request(_GET, 0, head, "list connections", _ERRORS)):
            attrs = wire.attributes(body, _MESSAGE.size)
            ports = wire.attributes(wire.attributes(attrs.get(_ORIGINAL, b"")).get(_TUPLE_PROTO, b""))
            if ports.get(_NUMBER) == bytes((protocol,)) and ports.get(_TO_PORT) == port.to_bytes(2, "big"):
                found.add(nested(_ORIGINAL, attrs[_ORIGINAL]) + attribute(_ID, attrs[_ID]))
        return self._forget(head, found, f"forget a connection to port {port}")

    def translations(self, family: int, protocol: int) -> Iterator[Translation]:
        """Yields the connections of a protocol in a family (4, 6), with where their packets go."""
        head = _MESSAGE.pack(_FAMILY[family], 0, 0)
        if self._count() == 0:
            return
        for body in self._netlink.dump(Request(_GET, 0, head, "list connections", _ERRORS)):
            attrs = wire.attributes(body, _MESSAGE.size)
            original, reply = (wire.attributes(attrs.get(direction, b"")) for direction in (_ORIGINAL, _REPLY))
            asked = wire.attributes(original.get(_TUPLE_PROTO, b""))
            if asked.get(_NUMBER) != bytes((protocol,)):
                continue
            answers = wire.attributes(reply.get(_TUPLE_PROTO, b""))
            yield Translation(
                wire.attributes(original.get(_TUPLE_IP, b"")).get(_DESTINATION[family], b""),
                wire.big(asked.get(_TO_PORT)),
                wire.attributes(reply.get(_TUPLE_IP, b"")).get(_SOURCE[family], b""),
                wire.big(answers.get(_FROM_PORT)),
                nested(_ORIGINAL, attrs[_ORIGINAL]) + attribute(_ID, attrs[_ID]),
            )

    def delete(self, family: int, translations: Iterable[Translation]) -> int:
        """Deletes connections; returns how many still existed."""
        head = _MESSAGE.pack(_FAMILY[family], 0, 0)
        return self._forget(head, {translation.identity for translation in translations}, "forget a connection")

    def _forget(self, head: bytes, bodies: set[bytes], operation: str) -> int:
        count = 0
        for body in bodies:
            try:
                self._netlink.do(Request(_DELETE, 0, head + body, operation, _ERRORS))
                count += 1
            except errors.Missing:
                pass  # it ended by itself meanwhile
        return count

    def _found(self, head: bytes, address: IP) -> Iterator[bytes]:
        """Yields original tuple and id of each connection with packets from the address, in either direction."""
        for body in self._dumped(head, address):
            attrs = wire.attributes(body, _MESSAGE.size)
            if address.packed in (_source(attrs.get(direction, b""), address) for direction in (_ORIGINAL, _REPLY)):
                yield nested(_ORIGINAL, attrs[_ORIGINAL]) + attribute(_ID, attrs[_ID])

    def _dumped(self, head: bytes, address: IP) -> list[bytes]:
        """At least those. Each dump makes the kernel look through its whole table, which is mostly empty: of few
        connections all are taken in one. Of many the kernel picks them out, one dump for each direction."""
        everything = Request(_GET, 0, head, "list connections", _ERRORS)
        count = self._count()
        if count == 0:
            return []
        if count < _FEW or address.version == 6:  # the kernel's filter for IPv6 takes the others: it is inverted
            return self._netlink.dump(everything)
        try:
            filters = [head + _from(address, direction) for direction in (_ORIGINAL, _REPLY)]
            return [connection for body in filters for connection in self._netlink.dump(everything._replace(body=body))]
        except (errors.Unsupported, errors.Refused):
            return self._netlink.dump(everything)  # before Linux 5.8

    def _count(self) -> int:
        """Returns the number of connections of this namespace."""
        attrs = self._netlink.ask(Request(_STATS, 0, _MESSAGE.pack(0, 0, 0), "count connections", _ERRORS))
        return wire.big(wire.attributes(attrs, _MESSAGE.size).get(_ENTRIES))


def _from(address: IP, direction: int) -> bytes:
    wanted = nested(direction, nested(_TUPLE_IP, attribute(_SOURCE[4], address.packed)))
    flags = _BY_SOURCE if direction == _ORIGINAL else 0, _BY_SOURCE if direction == _REPLY else 0
    return wanted + nested(_FILTER, u32(_FILTER_ORIGINAL, flags[0]), u32(_FILTER_REPLY, flags[1]))


def _source(tuple_: bytes, address: IP) -> bytes | None:
    return wire.attributes(wire.attributes(tuple_).get(_TUPLE_IP, b"")).get(_SOURCE[address.version])
