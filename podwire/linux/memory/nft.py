"""Simulated nft tables: of a ruleset only tables, sets and maps are understood, which is what elements need."""

import errno
import re

from podwire.linux import errors, keys
from podwire.linux.memory.world import Space
from podwire.linux.values import Change, Element

_Sets = dict[str, dict[bytes, Element]]
_TABLE = re.compile(r"(?P<verb>add\s+|delete\s+|flush\s+|)table\s+inet\s+(?P<name>\w+)")
_SET = re.compile(r"\b(?:set|map)\s+(\w+)\s*\{")


class MemoryElements:
    def __init__(self, space: Space, table: str) -> None:
        self._space, self._table = space, table

    def close(self) -> None:
        pass

    def add(self, name: str, *elements: Element) -> None:
        self.change(Change(name, add=elements))

    def delete(self, name: str, *elements: Element) -> None:
        self.change(Change(name, delete=elements))

    def change(self, *changes: Change) -> None:
        changes = tuple(each for each in changes if each.add or each.delete)
        operation = f"change elements of {', '.join(each.set for each in changes)}"
        new = {each.set: dict(self._set(each.set, operation)) for each in changes}
        for each in changes:
            _apply(new[each.set], each, operation)
        if changes:
            self._space.tables[self._table].update(new)

    def _set(self, name: str, operation: str) -> dict[bytes, Element]:
        if self._table not in self._space.tables:
            raise errors.NoSuchTable(errno.ENOENT, operation)
        if name not in self._space.tables[self._table]:
            raise errors.NoSuchSet(errno.ENOENT, operation)
        return self._space.tables[self._table][name]

    def list(self, name: str) -> list[Element]:
        try:
            return [*self._set(name, f"list elements of {name}").values()]
        except errors.NoSuchTable as error:  # asked for a list, the kernel does not say which of the two is missing
            raise errors.NoSuchSet(error.errno, error.operation) from error


def _apply(held: dict[bytes, Element], change: Change, operation: str) -> None:
    for each in change.delete:
        if held.pop(each.key, None) is None:
            raise errors.NoSuchElement(errno.ENOENT, operation)
    for each in change.add:
        if each.comment:
            keys.comment(each.comment)
        if each.key in held:
            raise errors.ElementExists(errno.EEXIST, operation)
        held[each.key] = each


class MemoryRuleset:
    def __init__(self, space: Space) -> None:
        self._space = space

    def apply(self, ruleset: str) -> None:
        if ruleset.count("{") != ruleset.count("}"):
            raise errors.BadRuleset(errno.EINVAL, "apply the nft ruleset", "braces do not match")
        found = [*_TABLE.finditer(ruleset)]
        for each, after in zip(found, [*found[1:], None], strict=True):
            body = ruleset[each.end() : after.start() if after else len(ruleset)]
            self._table(each["verb"].strip(), each["name"], body)

    def _table(self, verb: str, name: str, body: str) -> None:
        if verb == "delete":
            if self._space.tables.pop(name, None) is None:
                raise errors.BadRuleset(errno.EINVAL, "apply the nft ruleset", f"no table {name}")
            return
        sets: _Sets = self._space.tables.setdefault(name, {})
        for each in _SET.findall(body) if verb != "flush" else ():
            sets.setdefault(each, {})

    def delete_table(self, table: str) -> None:
        self.apply(f"add table inet {table}\ndelete table inet {table}\n")
