"""Renders a pod trace as a Mermaid sequence diagram. Pure."""

import re
from collections.abc import Iterator

from podwire.trace.participants import ORDER, in_order
from podwire.trace.plain_text import plain
from podwire.trace.pod_trace import Arrow, Cut, Gap, Pause, PodTrace, Remark, Turn, moments
from podwire.trace.wording import headline, lost, milliseconds

_MEANT = re.compile(r"[#;<>&%$]|\A(?:no)?wrap(?=:)|style|classDef", re.IGNORECASE)
"""Text that Mermaid, or the HTML that it generates, would interpret: entities, tags, comments, directives, formulas."""


def mermaid(trace: PodTrace) -> str:
    return "\n".join(_lines(trace)) + "\n"


def _lines(trace: PodTrace) -> Iterator[str]:
    yield "sequenceDiagram"
    participants = in_order({name for arrow in trace.arrows for name in (arrow.caller, arrow.callee)})
    names = {participant: _name(participant, number) for number, participant in enumerate(participants)}
    for participant in participants:
        alias = names[participant]
        yield (
            f"    participant {alias}" if alias == participant else f"    participant {alias} as {escaped(participant)}"
        )
    if participants:
        ends = ",".join(dict.fromkeys((names[participants[0]], names[participants[-1]])))
        yield f"    Note over {ends}: {escaped(headline(trace))}"
    for moment in moments(trace):
        match moment:
            case Gap() | Cut() | Pause():
                yield f"    Note over {names[participants[0]]}: {escaped(lost(moment))}"
            case Remark():
                over = [names[participant] for participant in moment.over if participant in names] or [
                    names[participants[0]]
                ]
                yield f"    Note over {','.join(over)}: {escaped(moment.text)}"
            case Arrow():
                yield f"    {names[moment.caller]}{_stroke(moment)}{names[moment.callee]}: {escaped(_label(moment))}"


def _label(arrow: Arrow) -> str:
    if arrow.turn is Turn.REPLY and arrow.took is not None:
        return f"{arrow.label} ({milliseconds(arrow.took)})"
    return f"{arrow.label} …" if arrow.turn is Turn.CALL and arrow.took is None else arrow.label


def _stroke(arrow: Arrow) -> str:
    if arrow.turn is Turn.CALL:
        return "->>" if arrow.took is not None else "-)"
    return "--x" if arrow.failed else "-->>"


def _name(participant: str, number: int) -> str:
    """Known participants keep their names; others get a number, because a name may be a keyword of Mermaid."""
    return participant if participant in ORDER else f"p{number}"


def escaped(text: str) -> str:
    """Escapes text for Mermaid: one line, and no entities but ours."""
    return _MEANT.sub(_entity, plain(text).strip()) or "-"


def _entity(match: re.Match[str]) -> str:
    """Returns the entity of a character; of a word, of its first character."""
    return f"#{ord(match[0][0])};{match[0][1:]}"
