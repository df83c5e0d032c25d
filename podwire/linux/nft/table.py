"""Our nftables table: its ruleset set once by the `nft` program, the elements of its sets and maps by netlink.

A transaction is atomic. The socket stays open: closing one after a deletion waits milliseconds for the kernel's
deferred work.
"""

import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from struct import Struct

from podwire.linux import errors
from podwire.linux.net import wire
from podwire.linux.net.netlink import NETFILTER, Netlink, Refusal
from podwire.linux.net.wire import CREATE, EXCL, REQUEST, Request, attribute, nested, text
from podwire.linux.nft import keys
from podwire.linux.nft.chains import KernelChains, counter_of
from podwire.linux.nft.expressions import VERDICTS, decision
from podwire.linux.nft.tables import Chain, KernelTables, Message, chain_addition, chain_deletion, transaction
from podwire.linux.nft.values import Change, Counter, Element
from podwire.linux.proc.namespaces import visit
from podwire.linux.proc.processes import Finished, run
from podwire.linux.proc.stopwatch import step
from podwire.linux.values import Path

TABLE = "podwire"
_FAMILIES = {"inet": 1, "bridge": 7}
_SUBSYSTEM = 10
_NEW, _GET, _DELETE = (_SUBSYSTEM << 8 | number for number in (12, 13, 14))
_MESSAGE = Struct(">BBH")  # family, version, resource
_TABLE, _SET, _ELEMENTS, _LIST_ELEMENT = 1, 2, 3, 1
_KEY, _DATA, _USERDATA, _EXPRESSION, _KEY_END = 1, 2, 6, 7, 10
_VALUE, _VERDICT, _CODE, _CHAIN = 1, 2, 1, 2
_WORDS = {code & 0xFFFFFFFF: word for word, code in VERDICTS.items()}
_PER_MESSAGE = 200  # a nest of elements ends at 64 KiB
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
_PATIENCE = 20.0


class KernelElements:
    """The elements of one table in one namespace, on a socket that is kept until `close`."""

    def __init__(
        self,
        netns: Path | int | None = None,
        table: str = TABLE,
        family: str = "inet",
        netlink: Netlink | None = None,
    ) -> None:
        self._netlink = Netlink(netns, protocol=NETFILTER) if netlink is None else netlink
        self._table, self._family = table, _FAMILIES[family]

    def of(self, family: str) -> "KernelElements":
        """The table of that name in another family (`bridge`), by the same socket."""
        return KernelElements(None, self._table, family, self._netlink)

    def tables(self) -> KernelTables:
        """Returns whole tables, by the same socket."""
        return KernelTables(netlink=self._netlink)

    def chains(self) -> KernelChains:
        """Returns chains of all tables, by the same socket."""
        return KernelChains(self._netlink)

    def close(self) -> None:
        self._netlink.close()

    def add(self, name: str, *elements: Element) -> None:
        """All or none. ElementExists, also for a key that has other data; NoSuchTable, NoSuchSet."""
        self.change(Change(name, add=elements))

    def delete(self, name: str, *elements: Element) -> None:
        """All or none, by their keys. NoSuchElement, NoSuchTable, NoSuchSet."""
        self.change(Change(name, delete=elements))

    def change(self, *changes: Change, new_chains: Sequence[Chain] = (), unused_chains: Iterable[str] = ()) -> None:
        """One transaction over several sets, in the order given.

        Chains of an `inet` table that elements lead to are added before, and deleted after. The errors of `add` and
        `delete`, and Busy for a chain to delete that others use.
        """
        messages = [message for chain in new_chains for message in chain_addition(self._table, chain)]
        messages += [message for change in changes for message in self._messages(change)]
        messages += [chain_deletion(self._table, chain) for chain in unused_chains]
        if not messages:
            return
        framed = transaction(messages)
        answers = self._netlink.exchange(framed)
        for (kind, _, body), refusal in zip(framed, answers, strict=True):
            if refusal is not None:
                raise _named(kind, body, refusal, f"change elements of {', '.join(change.set for change in changes)}")

    def messages(self, *changes: Change) -> Iterator[Message]:
        """Yields the messages of a transaction that others belong to, too."""
        for change in changes:
            yield from self._messages(change)

    def additions(self, name: str, members: Mapping[bytes, bytes | str]) -> Iterator[Message]:
        """Yields the messages that add very many elements without comments, by key; in a transaction of others."""
        head, new, packed = self._head(name), REQUEST | CREATE | EXCL, _packed_members(members)
        while some := list(islice(packed, _PER_MESSAGE)):
            yield _NEW, new, head + nested(_ELEMENTS, *some)

    def clearance(self, name: str) -> Message:
        """Deletes all elements of a set or map, in a transaction that others belong to, too."""
        return _DELETE, REQUEST, self._head(name)

    def _messages(self, change: Change) -> Iterator[Message]:
        for kind, flags, elements in ((_DELETE, 0, change.delete), (_NEW, CREATE | EXCL, change.add)):
            for start in range(0, len(elements), _PER_MESSAGE):
                packed = [_packed(element, kind == _NEW) for element in elements[start : start + _PER_MESSAGE]]
                yield kind, REQUEST | flags, self._head(change.set) + nested(_ELEMENTS, *packed)

    def _head(self, name: str) -> bytes:
        return _MESSAGE.pack(self._family, 0, 0) + text(_TABLE, self._table) + text(_SET, name)

    def list(self, name: str) -> list[Element]:
        """NoSuchTable, NoSuchSet."""
        return [_parsed(element) for element in self._listed(name)]

    def get(self, name: str, key: bytes) -> Element | None:
        """Returns the element of a set or map with this key; None without it, also without the set."""
        names: errors.Names = {errno.ENOENT: errors.NoSuchElement}
        body = self._head(name) + nested(_ELEMENTS, _packed(Element(key), whole=False))
        try:
            reply = self._netlink.ask(Request(_GET, 0, body, f"look up an element of {name}", names))
        except errors.NoSuchElement:
            return None
        elements = wire.attributes(reply, _MESSAGE.size).get(_ELEMENTS, b"")
        return next((_parsed(element) for _, element in wire.iter_attributes(elements)), None)

    def counted(self, name: str) -> dict[bytes, Counter]:
        """Returns counters by key, of a set whose elements have counters. Raises NoSuchTable, NoSuchSet."""
        return dict(_counts(element) for element in self._listed(name))

    def _listed(self, name: str) -> Iterator[bytes]:
        names: errors.Names = {errno.ENOENT: errors.NoSuchSet}
        request = Request(_GET, 0, self._head(name), f"list elements of {name}", names)
        for body in self._netlink.dump(request):
            attrs = wire.attributes(body, _MESSAGE.size)
            yield from (element for _, element in wire.iter_attributes(attrs.get(_ELEMENTS, b"")))


class KernelRuleset:
    """The ruleset of one namespace, as text."""

    def __init__(self, netns: Path | int | None = None) -> None:
        self._netns = netns

    def apply(self, ruleset: str) -> None:
        """Hand a text to `nft -f -`: one transaction. BadRuleset with what nft said; Unsupported without nft."""
        self._raise_on_failure("apply", self._nft("-f", "-", stdin=ruleset))

    def check(self, ruleset: str) -> None:
        """Whether it could be applied; nothing is changed. The same errors."""
        self._raise_on_failure("check", self._nft("-c", "-f", "-", stdin=ruleset))

    def listed(self, family: str, table: str) -> bytes:
        """Returns a table in nft's JSON form; b"" without the table, or without nft."""
        try:
            done = self._nft("-j", "list", "table", family, table, stdin="")
        except errors.Unsupported:
            return b""
        return done.stdout if done.code == 0 else b""

    def text(self) -> str:
        """Returns all tables in nft's own language. Raises BadRuleset, Unsupported without nft."""
        done = self._nft("list", "ruleset", stdin="")
        self._raise_on_failure("list", done)
        return done.stdout.decode("utf-8", "replace")

    def _raise_on_failure(self, action: str, done: Finished) -> None:
        if done.code != 0:
            message = done.stderr.decode("utf-8", "replace").strip()
            raise errors.BadRuleset(errno.EINVAL, f"{action} the nft ruleset", message)

    def delete_table(self, table: str = TABLE, family: str = "inet") -> None:
        """The table with all that is in it; nothing happens when there is none."""
        self.apply(f"add table {family} {table}\ndelete table {family} {table}\n")

    def _nft(self, *arguments: str, stdin: str) -> Finished:
        argv = ("nft", *arguments)
        try:
            if self._netns is None:
                with step("nft"):
                    return run(argv, env=_ENVIRONMENT, stdin=stdin.encode(), deadline=_PATIENCE)
            with visit(self._netns), step("nft"):  # the child starts where its parent's thread is
                return run(argv, env=_ENVIRONMENT, stdin=stdin.encode(), deadline=_PATIENCE)
        except errors.NoSuchPath as error:
            raise errors.Unsupported(errno.ENOENT, "run nft", "it is not installed") from error


def _packed(element: Element, whole: bool) -> bytes:
    if not element.end and not element.comment:
        key, data = element.key, element.data if whole else b""
        if isinstance(data, bytes):
            before, between, after = _frame(len(key), len(data))
            return before + key + between + data + after
        before, between, _ = _frame(len(key), data)
        return before + key + between
    parts = [nested(_KEY, attribute(_VALUE, element.key))]
    if element.end:
        parts.append(nested(_KEY_END, attribute(_VALUE, element.end)))
    if whole and element.data:
        data = element.data
        parts.append(nested(_DATA, attribute(_VALUE, data) if isinstance(data, bytes) else decision(data)))
    if whole and element.comment:
        parts.append(attribute(_USERDATA, keys.comment(element.comment)))
    return nested(_LIST_ELEMENT, *parts)


def _packed_members(members: Mapping[bytes, bytes | str]) -> Iterator[bytes]:
    for key, data in members.items():
        if isinstance(data, bytes):
            before, between, after = _frame(len(key), len(data))
            yield before + key + between + data + after
        else:
            before, between, _ = _frame(len(key), data)
            yield before + key + between


@lru_cache(maxsize=1024)
def _frame(key: int, data: int | str) -> tuple[bytes, bytes, bytes]:
    """Returns the bytes around key and data of an element: all that have equal lengths, or one verdict, have the same.

    Tens of thousands of elements are packed at once, and this takes a quarter of the time.
    """
    content = decision(data) if isinstance(data, str) else attribute(_VALUE, bytes(data))
    parts = [nested(_KEY, attribute(_VALUE, bytes(key)))] + ([nested(_DATA, content)] if data else [])
    whole, begin = nested(_LIST_ELEMENT, *parts), 3 * wire.ATTRIBUTE.size
    if not data:
        return whole[:begin], whole[begin + key :], b""
    if isinstance(data, str):
        return whole[:begin], whole[begin + key :], b""
    padding = -data % 4
    end = len(whole) - padding
    return whole[:begin], whole[begin + key : end - data], whole[end:]


def _parsed(body: bytes) -> Element:
    attrs = wire.attributes(body)
    key = wire.attributes(attrs.get(_KEY, b"")).get(_VALUE, b"")
    data = wire.attributes(attrs.get(_DATA, b""))
    comment = keys.commented(attrs.get(_USERDATA, b""))
    end = wire.attributes(attrs.get(_KEY_END, b"")).get(_VALUE, b"")
    if _VERDICT not in data:
        return Element(key, data.get(_VALUE, b""), comment, end)
    verdict = wire.attributes(data[_VERDICT])
    word, chain = _WORDS[wire.big(verdict.get(_CODE))], wire.string(verdict.get(_CHAIN, b""))
    return Element(key, f"{word} {chain}".strip(), comment, end)


def _counts(body: bytes) -> tuple[bytes, Counter]:
    attrs = wire.attributes(body)
    key = wire.attributes(attrs.get(_KEY, b"")).get(_VALUE, b"")
    return key, counter_of(attrs.get(_EXPRESSION, b"")) or Counter(0, 0)


def _named(kind: int, body: bytes, refusal: Refusal, operation: str) -> errors.LinuxError:
    """Returns the error by the attribute that the kernel rejected: what is missing or exists already."""
    at = None if refusal.offset is None else refusal.offset - wire.HEADER.size
    pointed = None if at is None else wire.ATTRIBUTE.unpack_from(body, at)[1] & wire.TYPE_MASK
    missing = {_TABLE: errors.NoSuchTable, _SET: errors.NoSuchSet} if at is not None and at < _elements_at(body) else {}
    names: errors.Names = {
        errno.ENOENT: missing.get(pointed or 0, errors.NoSuchElement),
        errno.EEXIST: errors.ElementExists,
    }
    if kind == _NEW:
        names = {**names, errno.EBUSY: errors.ElementExists}  # the key is there with other data
    return errors.from_errno(refusal.number, operation, refusal.words, names)


def _elements_at(body: bytes) -> int:
    """Returns the offset of the elements, behind the names of table and set."""
    at = _MESSAGE.size
    while at < len(body):
        length, kind = wire.ATTRIBUTE.unpack_from(body, at)
        if kind & wire.TYPE_MASK == _ELEMENTS:
            return at
        at += (length + 3) & ~3
    return at
