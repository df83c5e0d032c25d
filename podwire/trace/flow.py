"""A flow: the arrows that a pod trace must have, as data read from the YAML files in flows/."""

import re
from functools import cached_property
from pathlib import Path

import msgspec
import yaml

from podwire.trace.participants import role
from podwire.trace.pod_trace import Arrow, Turn

_FOLDER = Path(__file__).parent / "flows"
FLOWS = tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))

NOTHING = "nothing"


class Pattern(
    msgspec.Struct, kw_only=True, dict=True, forbid_unknown_fields=True, rename={"caller": "from", "callee": "to"}
):
    """Arrows between two participants; one of `call`, `reply` and `event` matches the method, without its query."""

    caller: str
    callee: str
    call: str = ""
    reply: str = ""
    event: str = ""
    why: str = ""

    @property
    def turn(self) -> Turn:
        return Turn.CALL if self.call else Turn.REPLY if self.reply else Turn.EVENT

    @cached_property
    def _method(self) -> re.Pattern[str]:
        return re.compile(self.call or self.reply or self.event)

    def describes(self, arrow: Arrow) -> bool:
        """Whether an arrow matches, whatever the pod's state."""
        if (role(arrow.caller), role(arrow.callee), arrow.turn) != (self.caller, self.callee, self.turn):
            return False
        whole, bare = arrow.method, arrow.method.partition("?")[0]
        return bool(self._method.fullmatch(whole) or self._method.fullmatch(bare))


class Step(Pattern, kw_only=True, dict=True, forbid_unknown_fields=True):
    """An arrow of the flow."""

    label: str
    id: str = ""
    need: str = "required"
    after: str = ""
    facts: dict[str, str] = {}

    def satisfied(self, arrow: Arrow) -> bool:
        if arrow.failed or not self.describes(arrow):
            return False
        facts = dict(arrow.facts)
        return all(_agrees(expected, facts.get(name, "")) for name, expected in self.facts.items())

    def __str__(self) -> str:
        stroke = "->>" if self.turn is Turn.CALL else "-->>"
        return f"{self.caller}{stroke}{self.callee}: {self.label}"


class Note(msgspec.Struct, forbid_unknown_fields=True):
    note: str
    over: list[str]

    def __str__(self) -> str:
        return f"Note over {','.join(self.over)}: {self.note}"


class Flow(msgspec.Struct, kw_only=True):
    name: str
    participants: list[str]
    lines: list[Step | Note]
    """Steps and notes in the order in which they are drawn."""
    also: list[Pattern] = []

    @property
    def steps(self) -> list[Step]:
        return [line for line in self.lines if isinstance(line, Step)]


def load(name: str) -> Flow:
    """Loads one of the flows that come with podwire."""
    data = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return Flow(
        name=data["flow"],
        participants=data["participants"],
        lines=[
            msgspec.convert(line, Note) if "note" in line else msgspec.convert(line, Step) for line in data["steps"]
        ],
        also=msgspec.convert(data.get("also", []), list[Pattern]),
    )


def _agrees(expected: str, actual: str) -> bool:
    match expected:
        case "*":
            return bool(actual)
        case "-":
            return not actual
        case _:
            return actual == expected
