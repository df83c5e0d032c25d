"""A plan of redirections made true in a pod's namespace, in one transaction."""

from typing import NamedTuple, Protocol

from podwire.linux import errors
from podwire.linux.nft.tables import Table, same
from podwire.nriplugins.network.mesh.plan import NOTHING, Plan
from podwire.nriplugins.network.mesh.ruleset import TABLE, table
from podwire.nriplugins.network.resources import Problem, Why


class Tables(Protocol):
    """The nft tables of the pod's namespace."""

    def get(self, name: str) -> Table | None: ...

    def put(self, table: Table, *, instead: bool = False) -> None: ...

    def delete(self, name: str) -> bool: ...


class Outcome(NamedTuple):
    changed: bool
    problems: tuple[Problem, ...]
    """All of the plan's, and what came up."""


def apply(tables: Tables, plan: Plan) -> Outcome:
    """Put the table where it is missing or differs, take it away where it is not wanted.

    Connections that are open stay what they are. What the kernel refuses, it refuses as a whole.
    """
    requested, installed = table(plan), tables.get(TABLE)
    if requested is None:
        return Outcome(installed is not None and tables.delete(TABLE), plan.problems)
    if installed is not None and same(requested, installed):
        return Outcome(False, plan.problems)
    try:
        tables.put(requested, instead=installed is not None)
    except errors.LinuxError as error:
        owners = [owner for way in (plan.inbound, plan.outbound) if way is not None for owner in way.owners]
        refused = [Problem(owner, Why.FAILED, "spec", str(error)) for owner in dict.fromkeys(owners)]
        return Outcome(False, (*plan.problems, *refused))
    return Outcome(True, plan.problems)


def remove(tables: Tables) -> bool:
    """Take away all that is ours; False when there was nothing."""
    return apply(tables, NOTHING).changed
