"""Rate limits of a link by rtnetlink: a token bucket for outgoing packets, a redirect through an ifb for incoming ones.

What leaves a link waits in its root qdisc. What comes in has no queue: it is sent through another link, an ifb, whose
root qdisc holds it back, and comes in after that.

A limit for some networks alone has a classful root qdisc (htb) instead of a token bucket (tbf): filters (u32) compare
an address of each packet and lead to a class with rate and burst, or past all classes. The class has a queue (bfifo) as
long as that of a token bucket.
"""

import errno
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import Sender
from podwire.linux.net.wire import CREATE, EXCL, Request, attribute, nested, text, u32
from podwire.linux.values import Bucket, Subnets

HANDLE = 0x7077 << 16
"""The handle of our qdiscs, which is their owner tag: no other handle is deleted."""
_NEW_QDISC, _DELETE_QDISC, _GET_QDISC, _NEW_FILTER, _GET_FILTER = 36, 37, 38, 44, 46
_MESSAGE = Struct("=BxxxiIII")  # family, index, handle, parent, info
_ROOT, _INGRESS, _INGRESS_HANDLE = 0xFFFFFFFF, 0xFFFFFFF1, 0xFFFF0000
_KIND, _OPTIONS = 1, 2

_RATE = Struct("=BBHhHI")  # cell log, link layer, overhead, cell alignment, least packet, bytes per second
_PARAMETERS = Struct("=12s12sIII")  # rate, peak rate, limit, buffer in ticks, largest packet
_TBF_PARAMETERS, _TBF_RATE64, _TBF_BURST = 1, 4, 6
_U64 = Struct("=Q")
_ETHERNET = 1
_MOST = 0xFFFFFFFF
_TICK = 64e-9  # seconds

_EVERYTHING = 3  # ETH_P_ALL
_FIRST = 1  # a filter's priority
_SELECTOR = Struct("=BBBxHHhhI")  # flags, shift, keys, mask, offsets …
_KEY = Struct("=IIii")  # mask, value, offset, its mask
_KEY_OFFSET = Struct("=ii")
_SELECT, _ACTIONS, _TERMINAL = 5, 7, 1
_ACTION_KIND, _ACTION_OPTIONS, _MIRRED_PARAMETERS = 1, 2, 2
_MIRRED = Struct("=IIiiiiI")  # index, capabilities, verdict, references, bindings, where to, link
_STOLEN, _TO_ITS_QUEUE = 4, 1

_NEW_CLASS, _GET_CLASS = 40, 42
_CLASS, _QUEUE_HANDLE = HANDLE | 0x30, 0x7078 << 16
_HTB_PARAMETERS, _HTB_INIT, _HTB_DIRECT, _HTB_RATE64, _HTB_CEIL64 = 1, 2, 5, 6, 7
_HTB = Struct("=12s12sIIIII")  # rate, ceiling, both buffers in ticks, quantum, level, priority
_HTB_GLOBAL = Struct("=IIIII")  # version, rate to quantum, default class, debug, direct packets
_VERSION, _RATE_TO_QUANTUM = 3, 10
_DIRECT_PACKETS = 1000
"""Length of the queue of packets that are not limited."""
_QUANTUM = (2000, 200_000)
"""Least and largest number of bytes that a class sends at a time; the kernel warns of others."""
_CLASS_ID = 1
_PRIORITIES = {4: 16, 6: 15}
"""Of filters; all filters of one priority are of one protocol."""
_PROTOCOLS = {4: 0x0800, 6: 0x86DD}
_OFFSETS = {(4, True): 12, (4, False): 16, (6, True): 8, (6, False): 24}
"""Of an address in the IP header, by family and whether it is the source."""


class Filter(NamedTuple):
    """Packets of a protocol that a filter leads to a class."""

    protocol: int
    keys: bytes
    class_id: int


_ERRORS: errors.Names = {
    errno.EEXIST: errors.QdiscExists,
    errno.ENODEV: errors.NoSuchLink,
    errno.ENOENT: errors.NoSuchQdisc,
}
_GONE: errors.Names = {**_ERRORS, errno.EINVAL: errors.NoSuchQdisc}  # there is one, and it is not ours


class KernelTraffic:
    """Traffic control of the links of one namespace, by their indexes."""

    def __init__(self, netlink: Sender) -> None:
        self._netlink = netlink

    def shape(self, index: int, bucket: Bucket) -> None:
        """Limits outgoing packets. Raises QdiscExists if the link has another root qdisc; NoSuchLink."""
        rate = _RATE.pack(0, _ETHERNET, 0, 0, 0, min(bucket.rate, _MOST))
        parameters = _PARAMETERS.pack(rate, bytes(_RATE.size), bucket.limit, 0, 0)
        options = [
            attribute(_TBF_PARAMETERS, parameters),
            u32(_TBF_BURST, bucket.burst),
            attribute(_TBF_RATE64, _U64.pack(bucket.rate)) if bucket.rate > _MOST else b"",
        ]
        body = _MESSAGE.pack(0, index, HANDLE, _ROOT, 0) + text(_KIND, "tbf") + nested(_OPTIONS, *options)
        self._netlink.do(Request(_NEW_QDISC, CREATE | EXCL, body, f"shape link {index}", _ERRORS))

    def shaped(self, index: int) -> Bucket | None:
        """Our bucket; its burst is right but for some bytes, as the kernel keeps it as a time."""
        found = self._qdisc(index, HANDLE)
        if found is None:
            return None
        attrs = wire.attributes(found.get(_OPTIONS, b""))
        rated, _, limit, ticks, _ = _PARAMETERS.unpack_from(attrs[_TBF_PARAMETERS])
        rate = wire.number(attrs[_TBF_RATE64]) if _TBF_RATE64 in attrs else _RATE.unpack(rated)[-1]
        return Bucket(rate, round(ticks * _TICK * rate), limit)

    def has_bucket(self, index: int) -> bool:
        """Whether a link has a token bucket, ours or of another program."""
        return any(wire.string(attrs.get(_KIND, b"")) == "tbf" for _, attrs in self._qdiscs(index))

    def shape_subnets(self, index: int, bucket: Bucket, subnets: Subnets) -> None:
        """Limits outgoing packets of some networks. Raises as `shape`, and Unsupported with the kernel's option.

        A failure leaves a part, which `unshape` removes.
        """
        operation = f"shape link {index}"
        default = 0 if subnets.limited else _CLASS & 0xFFFF
        settings = _HTB_GLOBAL.pack(_VERSION, _RATE_TO_QUANTUM, default, 0, 0)
        options = nested(_OPTIONS, attribute(_HTB_INIT, settings), u32(_HTB_DIRECT, _DIRECT_PACKETS))
        root = _MESSAGE.pack(0, index, HANDLE, _ROOT, 0) + text(_KIND, "htb") + options
        queue = _MESSAGE.pack(0, index, _QUEUE_HANDLE, _CLASS, 0) + text(_KIND, "bfifo") + u32(_OPTIONS, bucket.limit)
        steps = [
            (_NEW_QDISC, root, "CONFIG_NET_SCH_HTB"),
            (_NEW_CLASS, _class(index, bucket), "CONFIG_NET_SCH_HTB"),
            (_NEW_QDISC, queue, "CONFIG_NET_SCHED"),
            *((_NEW_FILTER, _selection(index, wanted), "CONFIG_NET_CLS_U32") for wanted in _filters(subnets)),
        ]
        for kind, body, option in steps:
            try:
                self._netlink.do(Request(kind, CREATE | EXCL, body, operation, _ERRORS))
            except errors.NoSuchQdisc as error:
                reason = f"this kernel is built without {option}, or the module is not loaded"
                raise errors.Unsupported(error.errno, operation, reason) from error

    def shaped_subnets(self, index: int) -> Bucket | None:
        """The bucket of `shape_subnets`; its burst is right but for some bytes."""
        request = Request(_GET_CLASS, 0, _MESSAGE.pack(0, index, 0, 0, 0), f"find the classes of link {index}", _ERRORS)
        queue = self._qdisc(index, _QUEUE_HANDLE)
        for body in self._netlink.dump(request):
            if queue is not None and _MESSAGE.unpack_from(body)[1:3] == (index, _CLASS):
                attrs = wire.attributes(wire.attributes(body, _MESSAGE.size).get(_OPTIONS, b""))
                rated, _, ticks, *_ = _HTB.unpack_from(attrs[_HTB_PARAMETERS])
                rate = wire.number(attrs[_HTB_RATE64]) if _HTB_RATE64 in attrs else _RATE.unpack(rated)[-1]
                return Bucket(rate, round(ticks * _TICK * rate), wire.number(queue.get(_OPTIONS)))
        return None

    def selects(self, index: int, subnets: Subnets) -> bool:
        """Whether the filters of a link are those of `shape_subnets`."""
        body = _MESSAGE.pack(0, index, 0, HANDLE, 0)
        found = self._netlink.dump(Request(_GET_FILTER, 0, body, f"find the filters of link {index}", _GONE))
        return set(filter(None, map(_parsed_filter, found))) == set(_filters(subnets))

    def _qdisc(self, index: int, handle: int) -> dict[int, bytes] | None:
        return next((attrs for own, attrs in self._qdiscs(index) if own == handle), None)

    def _qdiscs(self, index: int) -> Iterator[tuple[int, dict[int, bytes]]]:
        """Yields handles and attributes. The kernel lists those of all links, whatever it is asked."""
        request = Request(_GET_QDISC, 0, _MESSAGE.pack(0, index, 0, 0, 0), f"find the qdisc of link {index}", _ERRORS)
        for body in self._netlink.dump(request):
            if _MESSAGE.unpack_from(body)[1] == index:
                yield _MESSAGE.unpack_from(body)[2], wire.attributes(body, _MESSAGE.size)

    def unshape(self, index: int) -> None:
        """NoSuchQdisc, also for one that is not ours; NoSuchLink."""
        body = _MESSAGE.pack(0, index, HANDLE, _ROOT, 0)
        self._netlink.do(Request(_DELETE_QDISC, 0, body, f"unshape link {index}", _GONE))

    def redirect(self, index: int, to: int) -> None:
        """Redirects incoming packets of a link through another link. Raises QdiscExists, NoSuchLink."""
        operation = f"redirect link {index} to {to}"
        hook = _MESSAGE.pack(0, index, _INGRESS_HANDLE, _INGRESS, 0) + text(_KIND, "ingress")
        self._netlink.do(Request(_NEW_QDISC, CREATE | EXCL, hook, operation, _ERRORS))
        self._netlink.do(Request(_NEW_FILTER, CREATE | EXCL, _detour(index, to), operation, _ERRORS))

    def hooked(self, index: int) -> bool:
        """Whether a link has an ingress or clsact qdisc."""
        return self._qdisc(index, _INGRESS_HANDLE) is not None

    def redirected(self, index: int) -> int:
        """Returns the link that incoming packets are redirected to; 0 without a redirect."""
        body = _MESSAGE.pack(0, index, 0, _INGRESS_HANDLE, 0)
        try:
            found = self._netlink.dump(Request(_GET_FILTER, 0, body, f"find the filters of link {index}", _GONE))
        except errors.NoSuchQdisc:
            return 0
        return next(filter(None, map(_target, found)), 0)

    def unredirect(self, index: int) -> None:
        """NoSuchQdisc, NoSuchLink."""
        body = _MESSAGE.pack(0, index, _INGRESS_HANDLE, _INGRESS, 0)
        self._netlink.do(Request(_DELETE_QDISC, 0, body, f"end the redirection of link {index}", _GONE))


def _class(index: int, bucket: Bucket) -> bytes:
    """A class that borrows nothing: its ceiling is its rate."""
    rate = _RATE.pack(0, _ETHERNET, 0, 0, 0, min(bucket.rate, _MOST))
    ticks = min(int(bucket.burst / bucket.rate / _TICK) + 1, _MOST)
    quantum = min(max(bucket.rate // _RATE_TO_QUANTUM, _QUANTUM[0]), _QUANTUM[1])
    large = [attribute(kind, _U64.pack(bucket.rate)) for kind in (_HTB_RATE64, _HTB_CEIL64) if bucket.rate > _MOST]
    parameters = attribute(_HTB_PARAMETERS, _HTB.pack(rate, rate, ticks, ticks, quantum, 0, 0))
    options = nested(_OPTIONS, parameters, *large)
    return _MESSAGE.pack(0, index, _CLASS, HANDLE, 0) + text(_KIND, "htb") + options


def _filters(subnets: Subnets) -> Iterator[Filter]:
    """Yields the filters for networks; the handle of the root itself leads past all classes."""
    for network in subnets.networks:
        address, mask = network.network_address.packed, network.netmask.packed
        offset = _OFFSETS[network.version, subnets.by_source]
        words = [
            mask[at : at + 4] + address[at : at + 4] + _KEY_OFFSET.pack(offset + at, 0)
            for at in range(0, len(mask), 4)
            if any(mask[at : at + 4]) or at == 0
        ]
        yield Filter(_PROTOCOLS[network.version], b"".join(words), _CLASS if subnets.limited else HANDLE)


def _selection(index: int, wanted: Filter) -> bytes:
    selector = _SELECTOR.pack(_TERMINAL, 0, len(wanted.keys) // _KEY.size, 0, 0, 0, 0, 0) + wanted.keys
    options = nested(_OPTIONS, u32(_CLASS_ID, wanted.class_id), attribute(_SELECT, selector))
    version = next(version for version, protocol in _PROTOCOLS.items() if protocol == wanted.protocol)
    info = _PRIORITIES[version] << 16 | int.from_bytes(wanted.protocol.to_bytes(2, "big"), "little")
    return _MESSAGE.pack(0, index, 0, HANDLE, info) + text(_KIND, "u32") + options


def _parsed_filter(body: bytes) -> Filter | None:
    """None for the tables of a classifier, which are listed among its filters."""
    options = wire.attributes(wire.attributes(body, _MESSAGE.size).get(_OPTIONS, b""))
    if _SELECT not in options:
        return None
    info = _MESSAGE.unpack_from(body)[4]
    protocol = int.from_bytes((info & 0xFFFF).to_bytes(2, "little"), "big")
    count = _SELECTOR.unpack_from(options[_SELECT])[2]
    keys = options[_SELECT][_SELECTOR.size : _SELECTOR.size + count * _KEY.size]
    return Filter(protocol, keys, wire.number(options.get(_CLASS_ID)))


def _detour(index: int, to: int) -> bytes:
    """A filter that matches everything: a key whose mask is 0, for kernels without a classifier of that purpose."""
    selector = _SELECTOR.pack(_TERMINAL, 0, 1, 0, 0, 0, 0, 0) + _KEY.pack(0, 0, 0, 0)
    mirred = attribute(_MIRRED_PARAMETERS, _MIRRED.pack(0, 0, _STOLEN, 0, 0, _TO_ITS_QUEUE, to))
    action = nested(1, text(_ACTION_KIND, "mirred"), nested(_ACTION_OPTIONS, mirred))
    options = nested(_OPTIONS, attribute(_SELECT, selector), nested(_ACTIONS, action))
    info = _FIRST << 16 | int.from_bytes(_EVERYTHING.to_bytes(2, "big"), "little")
    return _MESSAGE.pack(0, index, 0, _INGRESS_HANDLE, info) + text(_KIND, "u32") + options


def _target(body: bytes) -> int:
    """The link that a filter sends packets to; 0 when it does something else."""
    options = wire.attributes(wire.attributes(body, _MESSAGE.size).get(_OPTIONS, b""))
    for _, action in wire.iter_attributes(options.get(_ACTIONS, b"")):
        attrs = wire.attributes(wire.attributes(action).get(_ACTION_OPTIONS, b""))
        if _MIRRED_PARAMETERS in attrs:
            return int(_MIRRED.unpack_from(attrs[_MIRRED_PARAMETERS])[-1])
    return 0
