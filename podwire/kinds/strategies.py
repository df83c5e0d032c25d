"""The Strategy of every built-in kind.

The one table of kinds is `protocols/k8sapi/builtin.py`, which clients share. A kind that has rules of its own has a
Strategy in a module of `kinds/builtin`, where it is found by its type; every other kind has the default one.
"""

import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module

from podwire.kinds import builtin
from podwire.kinds.strategy import Strategy
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.kinds import Kind


def join_strategies(kinds: Iterable[Kind], own: Iterable[Strategy]) -> Mapping[tuple[str, str], Strategy]:
    """Returns a Strategy for each kind, by group and kind: its own, or the default one.

    Raises LookupError for a Strategy of a kind that does not exist, and for a second one of the same kind.
    """
    strategies = {(kind.group, kind.kind): Strategy(group=kind.group, kind=kind.kind) for kind in kinds}
    seen: dict[tuple[str, str], Strategy] = {}
    for strategy in own:
        key = strategy.group, strategy.kind
        if key not in strategies:
            raise LookupError(f"the table of kinds lacks {strategy.kind} of group {strategy.group!r}")
        if seen.setdefault(key, strategy) is not strategy:
            raise LookupError(f"{strategy.kind} of group {strategy.group!r} has two strategies")
    return strategies | seen


def _own_strategies() -> Iterator[Strategy]:
    for module in pkgutil.walk_packages(builtin.__path__, f"{builtin.__name__}."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, Strategy):
                yield value


STRATEGIES = join_strategies(BUILTIN.all, _own_strategies())
"""By group and kind; the versions of a kind share one."""


def strategy_of(kind: Kind) -> Strategy:
    """Returns the Strategy of a built-in kind."""
    return STRATEGIES[kind.group, kind.kind]
