"""Snapshot and restore of a link's qdiscs and classes, which the kernel drops when the link moves.

Filters are not saved: the kernel cannot dump all of their parts. They are counted, and reported as lost.
"""

import errno
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import Sender
from podwire.linux.net.wire import CREATE, REPLACE, Request, attribute

_NEW_QDISC, _GET_QDISC, _NEW_CLASS, _GET_CLASS, _GET_FILTER = 36, 38, 40, 42, 46
_MESSAGE = Struct("=BxxxiIII")  # family, index, handle, parent, info
_KIND, _OPTIONS = 1, 2
_ROOT, _HOOK = 0xFFFFFFFF, 0xFFFFFFF1
_HOOKS = (0xFFFFFFF2, 0xFFFFFFF3)  # of clsact: what comes in, what leaves
_HTB_INIT = 2
_MADE_OF_CLASSES = frozenset(("drr", "hfsc", "htb", "qfq"))
"""Kinds with configurable classes; those of other kinds exist by themselves."""

_ERRORS: errors.Names = {errno.ENODEV: errors.NoSuchLink, errno.EEXIST: errors.QdiscExists}


class SavedQdisc(NamedTuple):
    is_class: bool
    handle: int
    parent: int
    kind: str
    options: str
    """In hex, opaque."""
    filters: int = 0


class SavedQdiscs:
    """Qdiscs of one namespace."""

    def __init__(self, netlink: Sender) -> None:
        self._netlink = netlink

    def list(self, index: int) -> tuple[SavedQdisc, ...]:
        """Returns the configured qdiscs of a link; the kernel's default ones have no handle."""
        queues = [qdisc for qdisc in self._dump(_GET_QDISC, index) if qdisc.handle >> 16]
        if not queues:
            return ()
        classes = [class_ for class_ in self._dump(_GET_CLASS, index) if class_.kind in _MADE_OF_CLASSES]
        counted = [queue._replace(filters=self._filters(index, queue)) for queue in queues]
        return tuple(sorted((*counted, *classes), key=_order))

    def _dump(self, kind: int, index: int) -> tuple[SavedQdisc, ...]:
        request = Request(kind, 0, _MESSAGE.pack(0, index, 0, 0, 0), f"list the queues of link {index}", _ERRORS)
        bodies = [reply for reply in self._netlink.dump(request) if _MESSAGE.unpack_from(reply)[1] == index]
        return tuple(_kept(body, is_class=kind == _GET_CLASS) for body in bodies)

    def _filters(self, index: int, queue: SavedQdisc) -> int:
        parents = _HOOKS if queue.kind == "clsact" else (queue.handle,)
        found = 0
        for parent in parents:
            body = _MESSAGE.pack(0, index, 0, parent, 0)
            try:
                found += len(self._netlink.dump(Request(_GET_FILTER, 0, body, "list filters", _ERRORS)))
            except errors.LinuxError:  # its kind has none
                continue
        return found

    def restore(self, index: int, wanted: Sequence[SavedQdisc]) -> tuple[str, ...]:
        """Adds missing qdiscs and classes; returns a message for each that was lost."""
        found = {qdisc.handle for qdisc in self.list(index)} if wanted else set()
        lost = []
        for qdisc in wanted:
            if qdisc.handle in found:
                continue
            try:
                self._make(index, qdisc)
            except errors.LinuxError as error:
                lost.append(str(error))
            if qdisc.filters:
                lost.append(f"{qdisc.filters} filters of the {qdisc.kind} queue {qdisc.handle >> 16:x}:")
        return tuple(lost)

    def _make(self, index: int, queue: SavedQdisc) -> None:
        kind, flags = (_NEW_CLASS, CREATE) if queue.is_class else (_NEW_QDISC, CREATE | REPLACE)
        body = _MESSAGE.pack(0, index, queue.handle, queue.parent, 0) + attribute(_KIND, queue.kind.encode() + b"\0")
        if queue.options:
            body += attribute(_OPTIONS, bytes.fromhex(queue.options))
        what = "class" if queue.is_class else "queue"
        handle = f"{queue.handle >> 16:x}:" + (f"{queue.handle & 0xFFFF:x}" if queue.is_class else "")
        self._netlink.do(Request(kind, flags, body, f"make the {queue.kind} {what} {handle} of link {index}", _ERRORS))


def _order(queue: SavedQdisc) -> tuple[int, bool, bool]:
    """Sorts qdiscs of the link before classes, parents before children, and qdiscs of classes last."""
    on_link = queue.parent in (_ROOT, _HOOK) and not queue.is_class
    return (0 if on_link else 1 if queue.is_class else 2), queue.parent != _ROOT, bool(queue.parent & 0xFFFF)


def _kept(body: bytes, *, is_class: bool) -> SavedQdisc:
    _, _, handle, parent, _ = _MESSAGE.unpack_from(body)
    attrs = wire.attributes(body, _MESSAGE.size)
    kind, options = wire.string(attrs.get(_KIND, b"")), attrs.get(_OPTIONS, b"")
    if kind == "htb" and not is_class:
        options = _as_asked(options)
    return SavedQdisc(is_class, handle, parent, kind, options.hex())


def _as_asked(options: bytes) -> bytes:
    """Shortens the version in htb's options: the kernel dumps all of it, and accepts the major number only."""
    attrs = wire.attributes(options)
    whole = wire.number(attrs[_HTB_INIT][:4])
    attrs[_HTB_INIT] = wire.U32.pack(whole >> 16 or whole) + attrs[_HTB_INIT][4:]
    return b"".join(attribute(kind, value) for kind, value in attrs.items())
