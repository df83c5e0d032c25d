"""The policies of one network namespace in the kernel; each change is one transaction."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from ipaddress import ip_address
from typing import NamedTuple

from podwire.linux import errors
from podwire.linux.net.conntrack import KernelConntrack
from podwire.linux.nft.table import KernelElements
from podwire.linux.nft.values import Change, Counter, Element
from podwire.linux.values import IP, Path
from podwire.nriplugins.network.policy.content import SETS, VERDICTS, DesiredContent
from podwire.nriplugins.network.policy.elements import key_of
from podwire.nriplugins.network.policy.program import NODE, TABLE, node_program, pod_program

_BY_ADDRESS = ("identity", "ingress", "egress", "self", "sources", "verdicts")
_MEANINGS = {number: meaning for meaning, number in VERDICTS.items()}


class Verdict(NamedTuple):
    """Packets that open connections of a local address, by verdict."""

    address: bytes
    direction: str
    allowed: bool
    counted: Counter


class Kernel:
    """The table of the node, or (`inside`) of a single pod's namespace. Synchronous, for one thread at a time."""

    def __init__(self, netns: Path | None = None, *, inside: bool = False, node: Iterable[IP] = ()) -> None:
        """An existing table is kept unchanged until the first `apply`.

        `node` are the node's addresses: from there a pod can always be reached. Raises LinuxError.
        """
        self._elements = KernelElements(netns, TABLE)
        self._conntrack = KernelConntrack(netns)
        self._program = pod_program() if inside else node_program()
        with ExitStack() as undo:
            undo.callback(self.close)
            self._applied = self._begin()
            if inside:
                changes: list[Change] = []
                for version, name in NODE.items():
                    requested = {
                        address.packed: Element(address.packed) for address in node if address.version == version
                    }
                    current = {element.key: element for element in self._elements.list(name)}
                    changes += _difference({name: current}, {name: requested})
                self._elements.change(*changes)
            undo.pop_all()
        self._version: int | None = None

    def _begin(self) -> dict[str, dict[bytes, Element]]:
        """The table, and what is in it."""
        tables = self._elements.tables()
        if not tables.exists(TABLE):
            tables.put(self._program)
            return {name: {} for name in SETS}
        try:
            tables.put(self._program)
        except errors.LinuxError:  # its sets have another shape: another version of this program made them
            tables.put(self._program, instead=True)
        return self._read()

    def close(self) -> None:
        """Closes the socket; the rules stay in the kernel."""
        self._elements.close()
        self._conntrack.close()

    def remove(self) -> None:
        """Removes the table: no packet is filtered any more."""
        self._elements.tables().delete(TABLE)
        self._version, self._applied = None, {name: {} for name in SETS}

    def apply(self, content: DesiredContent) -> int:
        """Applies the content in one transaction; returns how many elements changed. Raises LinuxError.

        Connections of addresses that no local pod has any more are forgotten.
        """
        changes = [*self._changes(content)]
        try:
            self._elements.change(*changes)
        except errors.LinuxError:
            # Somebody else was at our table. What is there is read, not guessed, and the answer is final.
            self._program_again()
            changes = [*_difference(self._applied, content.sets)]
            self._elements.change(*changes)
        self._note(changes)
        self._version = content.version
        for change in _freed(changes):
            self._conntrack.forget(change)
        return sum(len(change.add) + len(change.delete) for change in changes)

    def release(self, ips: Iterable[IP]) -> None:
        """Removes addresses from all sets and maps in one transaction, and their connections from conntrack."""
        packed = {ip.packed for ip in ips}
        changes = []
        for name, elements_by_key in self._applied.items():
            if name[:-1] in _BY_ADDRESS:
                length = 4 if name.endswith("4") else 16
                elements = [
                    element
                    for key, element in elements_by_key.items()
                    if key[:length] in packed or key[-length:] in packed
                ]
                if elements:
                    changes.append(Change(name, delete=elements))
        self._elements.change(*changes)
        self._note(changes)
        for ip in ips:
            self._conntrack.forget(ip)

    def verdicts(self) -> list[Verdict]:
        """Verdict counters by address; an address that becomes isolated starts at 0."""
        verdicts = []
        for name in ("verdicts4", "verdicts6"):
            for key, counted in self._elements.counted(name).items():
                direction, allowed = _MEANINGS[int.from_bytes(key[-4:], "little")]
                verdicts.append(Verdict(key[:-4], direction, allowed, counted))
        return verdicts

    def audit(self) -> bool:
        """Returns whether the kernel still has what was applied; if not, the next `apply` repairs it."""
        try:
            same = self._read() == self._applied
        except errors.LinuxError:
            same = False
        if not same:
            self._version = None
            self._program_again()
        return same

    def content(self) -> dict[str, dict[bytes, Element]]:
        """Reads the table from the kernel."""
        return self._read()

    def _program_again(self) -> None:
        self._applied, self._version = self._begin(), None

    def _read(self) -> dict[str, dict[bytes, Element]]:
        return {name: {key_of(element): element for element in self._elements.list(name)} for name in SETS}

    def _changes(self, content: DesiredContent) -> Iterator[Change]:
        if self._version is None or self._version != content.since:
            yield from _difference(self._applied, content.sets)
            return
        for name, touched in content.touched.items():
            current, requested = self._applied[name], content.sets[name]
            differing = [key for key in touched if current.get(key) != requested.get(key)]
            if differing:
                add = [requested[key] for key in differing if key in requested]
                yield Change(name, add, [current[key] for key in differing if key in current])

    def _note(self, changes: Iterable[Change]) -> None:
        for change in changes:
            current = self._applied[change.set]
            for element in change.delete:
                current.pop(key_of(element), None)
            for element in change.add:
                current[key_of(element)] = element


def _difference(
    applied: Mapping[str, Mapping[bytes, Element]], requested: Mapping[str, Mapping[bytes, Element]]
) -> Iterator[Change]:
    for name, elements in requested.items():
        current = applied[name]
        add = [element for key, element in elements.items() if current.get(key) != element]
        delete = [element for key, element in current.items() if elements.get(key) != element]
        if add or delete:
            yield Change(name, add, delete)


def _freed(changes: Iterable[Change]) -> Iterator[IP]:
    """Addresses that no local pod has any more; `self` has one entry per address of a local pod."""
    for change in changes:
        if change.set in ("self4", "self6"):
            kept = {element.key for element in change.add}
            for element in change.delete:
                half = len(element.key) // 2
                if element.key not in kept and element.key[:half] == element.key[half:]:
                    yield ip_address(element.key[:half])
