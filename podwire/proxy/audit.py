"""Looks whether the table in the kernel is still what the proxy wrote: others may flush it, or delete some of it.

The kernel counts the changes of all tables of a network namespace. A look reads this number, and while only the proxy
has changed anything that is all. After a change by others it compares the rules at once, and the elements of a bounded
number of Services; the following looks go on with the next ones, until all were compared.
"""

from collections import deque
from collections.abc import Iterable

from podwire.proxy.kernel import Kernel
from podwire.proxy.model import Model, Row
from podwire.proxy.values import Name

ROWS = 300
"""Elements that one look compares, or those of one Service if it has more: some 15 ms."""


class Audit:
    """Compares a table with the model that it was written from."""

    def __init__(self, kernel: Kernel, model: Model, rows: int = ROWS) -> None:
        self._kernel, self._model, self._rows = kernel, model, rows
        self._next: deque[Name | None] = deque()
        """Services in the order in which they are compared; None are the elements that belong to no single one."""
        self._due = 0
        """How many of them are still to be compared since others made their last change."""

    def look(self) -> bool:
        """Whether all that was compared is as it should be. Raises LinuxError."""
        if self._kernel.was_changed_by_others():
            if not self._kernel.has_rules():
                return False
            self._due = len(self._next) + len(self._model.services) + 1
        return self._kernel.has(self._some_rows())

    def reset(self) -> None:
        """Everything was written again."""
        self._due = 0

    def _some_rows(self) -> list[Row]:
        rows: list[Row] = []
        while self._due and len(rows) < self._rows:
            if not self._next:
                self._next.extend((None, *self._model.services))
            rows += self._rows_of(self._next.popleft())
            self._due -= 1
        return rows

    def _rows_of(self, name: Name | None) -> Iterable[Row]:
        return self._model.hairpin() if name is None else self._model.plan_of(name).elements.items()
