"""A whole script of a fake plugin, and which of its turns it is at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podwire.nri.fake.actions import GOOD, Rule
from podwire.protocols.nri import VERSION
from podwire.protocols.nri.events import ALL_EVENTS

REGISTER = "RegisterPlugin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Who the plugin says it is, and what it does when."""

    name: str = "fake"
    index: str = "50"
    version: str = VERSION
    events: int = ALL_EVENTS
    """The mask that it answers Configure with; whatever it is, it is sent."""
    calls: bool = True
    """Whether it knows the calls that there are since 0.12."""
    state_change: bool = True
    """Whether it knows how those events travelled before."""
    reconnect: float | None = None
    """Seconds after which it connects again when the connection ended; None leaves."""
    on: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)


class RuleQueue:
    """Which turn a call gets; turns that are for so many calls are used up."""

    def __init__(self, script: Script) -> None:
        self._left: dict[str, list[tuple[Rule, int | None]]] = {
            call: [(each, each.times) for each in turns] for call, turns in script.on.items()
        }

    def next(self, call: str, request: Any = None) -> Rule:
        pod, container = subject(request)
        for number, (turn, left) in enumerate(self._left.get(call, [])):
            if left != 0 and turn.means(pod, container):
                self._left[call][number] = (turn, None if left is None else left - 1)
                return turn
        return GOOD


def subject(request: Any) -> tuple[str, str]:
    """The names of the pod and the container that a request is about."""
    fields = request.DESCRIPTOR.fields_by_name if request is not None else {}
    pod = request.pod.name if "pod" in fields else ""
    container = request.container.name if "container" in fields else ""
    return pod, container
