"""A story as a Mermaid sequence diagram. Pure."""

import re
from collections.abc import Iterator

from podwire.trace.participants import ORDER, placed
from podwire.trace.plain_text import plain
from podwire.trace.pod_trace import Arrow, Cut, Gap, PodTrace, Remark, Turn, moments
from podwire.trace.wording import headline, lost, milliseconds

_MEANT = re.compile(r"[#;<>&%$]|\A(?:no)?wrap(?=:)|style|classDef", re.IGNORECASE)
"""What Mermaid, or the HTML that it makes, would take for more than text: ends, entities, tags, comments and
directives, formulas, and the words at which it looks for them."""


def mermaid(trace: PodTrace) -> str:
    return "\n".join(_lines(trace)) + "\n"


def _lines(trace: PodTrace) -> Iterator[str]:
    yield "sequenceDiagram"
    people = placed({name for arrow in trace.arrows for name in (arrow.caller, arrow.callee)})
    names = {participant: _name(participant, number) for number, participant in enumerate(people)}
    for participant in people:
        alias = names[participant]
        yield (
            f"    participant {alias}" if alias == participant else f"    participant {alias} as {escaped(participant)}"
        )
    if people:
        ends = ",".join(dict.fromkeys((names[people[0]], names[people[-1]])))
        yield f"    Note over {ends}: {escaped(headline(trace))}"
    for told in moments(trace):
        match told:
            case Gap() | Cut():
                yield f"    Note over {names[people[0]]}: {escaped(lost(told))}"
            case Remark():
                over = [names[participant] for participant in told.over if participant in names] or [names[people[0]]]
                yield f"    Note over {','.join(over)}: {escaped(told.text)}"
            case Arrow():
                yield f"    {names[told.caller]}{_stroke(told)}{names[told.callee]}: {escaped(_label(told))}"


def _label(arrow: Arrow) -> str:
    if arrow.turn is Turn.REPLY and arrow.took is not None:
        return f"{arrow.label} ({milliseconds(arrow.took)})"
    return f"{arrow.label} …" if arrow.turn is Turn.CALL and arrow.took is None else arrow.label


def _stroke(arrow: Arrow) -> str:
    if arrow.turn is Turn.CALL:
        return "->>" if arrow.took is not None else "-)"
    return "--x" if arrow.failed else "-->>"


def _name(participant: str, number: int) -> str:
    """Ours are called by their names, strangers by a number: what they are called may be a word of Mermaid's."""
    return participant if participant in ORDER else f"p{number}"


def escaped(text: str) -> str:
    """Text that means nothing to Mermaid: one line, and no entity but ours."""
    return _MEANT.sub(_entity, plain(text).strip()) or "-"


def _entity(found: re.Match[str]) -> str:
    """A character by its number; of a word, its first."""
    return f"#{ord(found[0][0])};{found[0][1:]}"
