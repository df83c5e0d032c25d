"""The table of the proxy in the kernel. Each change is one transaction; synchronous, for one thread at a time."""

from collections import Counter
from collections.abc import Iterable

from podwire.linux import errors
from podwire.linux.nft.table import KernelElements
from podwire.linux.nft.tables import Chain, Message, Table, same
from podwire.linux.nft.values import Change, Element
from podwire.linux.values import Path
from podwire.proxy.plan import Key
from podwire.proxy.program import RANGES, STATIC, TABLE, TARGETS, VERSIONS, Settings, chains_of, program, target_of

Row = tuple[Key, bytes | str]
SETS = (TARGETS, *(f"{name}{version}" for name in (*STATIC, *RANGES) for version in VERSIONS))
"""Sets and maps with elements of Services. What rules remember of clients is not among them, and outlives a restart."""


class Kernel:
    """The table of one network namespace, by default the caller's own."""

    def __init__(self, netns: Path | None = None) -> None:
        self._elements = KernelElements(netns, TABLE)
        self._tables = self._elements.tables()
        self._settings = Settings()
        self._uses: Counter[str] = Counter()
        """The number of Services that lead to each chain."""
        self._chains: set[str] = set()
        self._generation = -1
        """The kernel's number of changes of all tables, if only we have changed any since it was read."""

    def close(self) -> None:
        """Closes the socket. The table stays in the kernel: connections are made as before."""
        self._elements.close()

    def remove(self) -> bool:
        """Removes the table; returns whether there was one."""
        return self._tables.delete(TABLE)

    def replace(self, rows: Iterable[Row], settings: Settings) -> int:
        """Puts the whole table in one transaction, whatever is there; returns the number of elements.

        Of several rows with one key, the first counts. Raises LinuxError.
        """
        fixed = program(settings)
        uses: Counter[str] = Counter()
        by_set: dict[str, dict[bytes, bytes | str]] = {name: {} for name in SETS}
        for (name, key), data in rows:
            by_set[name].setdefault(key, data)
            if name == TARGETS:
                uses[_chain_name(data)] += 1
        chains = _chains(uses, settings)
        table = Table(TABLE, [*chains, *fixed.chains], fixed.sets)
        count = sum(map(len, by_set.values()))
        packed = [message for name, members in by_set.items() for message in self._additions(name, members)]
        del by_set
        exists = self._tables.exists(TABLE)
        self._generation = self._tables.generation()
        try:
            if exists and not self._remembers_clients():  # to flush a map takes the kernel longer than to make another
                self._tables.put(table, instead=True, elements=packed)
            else:
                cleared = [self._elements.clearance(name) for name in SETS] if exists else []
                self._tables.put(table, elements=[*cleared, *packed])
        except errors.LinuxError:
            if not exists:
                raise
            self._tables.put(table, instead=True, elements=packed)  # made by another version of this program
        self._generation += 1
        self._settings, self._uses, self._chains = settings, uses, {chain.name for chain in chains}
        self.delete_unused()
        return count

    def _remembers_clients(self) -> bool:
        """Whether the table that exists knows clients with session affinity."""
        try:
            return any(self._elements.list(f"affinity{version}") for version in VERSIONS)
        except errors.Missing:
            return False

    def _additions(self, name: str, members: dict[bytes, bytes | str]) -> Iterable[Message]:
        if name.startswith("sources"):
            return self._elements.messages(Change(name, add=_elements(name, members.items())))
        return self._elements.additions(name, members)

    def change(self, deleted: Iterable[Row], added: Iterable[Row]) -> None:
        """Changes elements; chains that these lead to are made before. Raises LinuxError, and nothing has changed."""
        away, new = _by_set(deleted), _by_set(added)
        targets = away.pop(TARGETS, ()), new.pop(TARGETS, ())
        changes = [Change(name, delete=_elements(name, members)) for name, members in away.items()]
        changes += [Change(name, add=_elements(name, members)) for name, members in new.items()]
        if not changes and not any(targets):
            return
        missing = [
            Element(key, data) for key, data in dict(targets[1]).items() if _chain_name(data) not in self._chains
        ]
        chains = _chains((_chain_name(element.data) for element in missing), self._settings)
        chains = [chain for chain in chains if chain.name not in self._chains]
        self._elements.change(*([Change(TARGETS, add=missing)] if missing else []), *changes, new_chains=chains)
        self._generation += 1
        self._uses.subtract(_chain_name(data) for _, data in targets[0])
        self._uses.update(_chain_name(data) for _, data in targets[1])
        self._chains.update(chain.name for chain in chains)

    def delete_unused(self) -> int:
        """Deletes chains that no element leads to any more; returns how many."""
        existing = [name for name in self._tables.chain_names(TABLE) if target_of(name) is not None]
        leading = [element for element in self._elements.list(TARGETS) if not self._uses[_chain_name(element.data)]]
        if leading:
            self._elements.change(Change(TARGETS, delete=leading))
            self._generation += 1
        used = {chain.name for chain in _chains((name for name, count in self._uses.items() if count), self._settings)}
        deleted = 0
        for name in sorted(existing, key=lambda name: "pick" in name):  # others lead to these
            if name not in used:
                self._chains.discard(name)
                deleted += self._tables.delete_chain(TABLE, name)
        self._uses = +self._uses
        self._generation += deleted
        return deleted

    @property
    def has_unused(self) -> bool:
        """Whether there are chains that no Service leads to any more."""
        return any(count <= 0 for count in self._uses.values())

    def was_changed_by_others(self) -> bool:
        """Whether others have changed any table of the namespace since this was asked last; reads a single number."""
        generation = self._tables.generation()
        was_changed, self._generation = generation != self._generation, generation
        return was_changed

    def has_rules(self) -> bool:
        """Whether the table has our rules."""
        table = self._tables.get(TABLE)
        if table is None:
            return False
        ours = Table(TABLE, [*program(self._settings).chains, *_chains(self._chains, self._settings)])
        known = {chain.name for chain in ours.chains}
        return same(ours, Table(TABLE, [chain for chain in table.chains if chain.name in known]))

    def has(self, rows: Iterable[Row]) -> bool:
        """Whether the table has these elements, with these data."""
        for (name, key), data in rows:
            element = self._elements.get(name, key)
            if element is None or (element.end or element.data) != data:
                return False
        return True

    def list(self, name: str) -> dict[bytes, bytes | str]:
        """Returns the elements of a set or map: data by key; of a set of ranges the last key by the first."""
        return {element.key: element.end or element.data for element in self._elements.list(name)}


def _chain_name(data: bytes | str) -> str:
    return str(data).removeprefix("goto ")


def _chains(names: Iterable[str], settings: Settings) -> list[Chain]:
    """Returns chains by name, and those that they lead to, in the order in which they can be made."""
    chains: dict[str, Chain] = {}
    for name in names:
        target = target_of(name)
        if target is not None:
            chains.update((chain.name, chain) for chain in chains_of(target, settings))
    return list(chains.values())


def _by_set(rows: Iterable[Row]) -> dict[str, list[tuple[bytes, bytes | str]]]:
    grouped: dict[str, list[tuple[bytes, bytes | str]]] = {}
    for (name, key), data in rows:
        grouped.setdefault(name, []).append((key, data))
    return grouped


def _elements(name: str, members: Iterable[tuple[bytes, bytes | str]]) -> list[Element]:
    if name.startswith("sources"):
        return [Element(key, end=end) for key, end in members if isinstance(end, bytes)]
    return [Element(key, data) for key, data in members]
