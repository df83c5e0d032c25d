"""What the search found on nodes, kept while nothing there has changed.

Pods that are alike ask the same again and again, and between two of them one node in hundreds has other devices free.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from podwire.objects.claims import DeviceConstraint
from podwire.objects.nodes import Node
from podwire.scheduler.claims.allocated_devices import Ledger
from podwire.scheduler.claims.allocator import Budget, Picks, Surroundings, search
from podwire.scheduler.claims.claim_requests import Needs, Request
from podwire.scheduler.claims.devices import Pool

MOST_QUESTIONS = 32

Question = tuple[tuple[tuple[Request, ...], tuple[DeviceConstraint, ...]], ...]
Stamp = tuple[int, ...]
Found = tuple[Picks, ...] | None


class Answers:
    """To one question, by node."""

    def __init__(self, needed: Sequence[Needs]) -> None:
        self.needed = needed
        self._known: dict[str, tuple[Stamp, Found]] = {}

    def on(self, node: Node, pools: Sequence[Pool], ledger: Ledger, budget: Budget) -> Found:
        """Raises what the search does; that is not kept."""
        if not self.needed:
            return ()
        name = node.metadata.name
        stamp = _stamp(pools, ledger.changes)
        known = self._known.get(name)
        if known is not None and known[0] == stamp:
            return known[1]
        found = search(self.needed, Surroundings(node, pools, ledger, budget))
        if stamp is not None:
            self._known[name] = (stamp, found)
        return found


def _stamp(pools: Sequence[Pool], changes: Mapping[tuple[str, str], int]) -> Stamp | None:
    """Another one when a pool near a node was written, or a device of it taken or given back. None where that is not
    all that counts: devices beyond one node are reached by the node's labels."""
    parts: list[int] = []
    for pool in pools:
        if not pool.node:
            return None
        parts += (pool.serial, changes.get(pool.key, 0))
    return tuple(parts)


class AnswerBook:
    """The questions that were asked last."""

    def __init__(self) -> None:
        self._questions: OrderedDict[Question, Answers] = OrderedDict()

    def to(self, needed: Sequence[Needs]) -> Answers:
        question = tuple((each.requests, each.constraints) for each in needed)
        answers = self._questions.pop(question, None) or Answers(needed)
        self._questions[question] = answers
        if len(self._questions) > MOST_QUESTIONS:
            self._questions.popitem(last=False)
        return answers
