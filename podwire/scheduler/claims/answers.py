"""What the search found on nodes, kept while nothing there has changed.

Pods that are alike ask the same again and again, and between two of them one node in hundreds has other devices free.
"""

from collections import OrderedDict
from collections.abc import Sequence

from podwire.objects.claims import DeviceConstraint
from podwire.scheduler.claims.needs import Needs, Request
from podwire.scheduler.claims.search import Picks, Surroundings, search

MOST_QUESTIONS = 32

Question = tuple[tuple[tuple[Request, ...], tuple[DeviceConstraint, ...]], ...]
Stamp = tuple[int, ...]
Found = tuple[Picks, ...] | None


class Answers:
    """To one question, by node."""

    def __init__(self, needed: Sequence[Needs]) -> None:
        self.needed = needed
        self._known: dict[str, tuple[Stamp, Found]] = {}

    def on(self, around: Surroundings) -> Found:
        """Raises what the search does; that is not kept."""
        stamp = _stamp(around)
        if stamp is None:
            return search(self.needed, around)
        name = around.node.name
        known = self._known.get(name)
        if known is None or known[0] != stamp:
            known = self._known[name] = (stamp, search(self.needed, around))
        return known[1]


def _stamp(around: Surroundings) -> Stamp | None:
    """Another one when a pool near the node was written, or a device of it taken or given back. None where that is not
    all that counts: devices beyond one node are reached by the node's labels."""
    changes = around.ledger.changes
    parts: list[int] = []
    for pool in around.pools:
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
