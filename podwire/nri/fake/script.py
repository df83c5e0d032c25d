"""The script of a fake plugin, and which of its rules are used up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from podwire.nri.fake.actions import GOOD, Rule
from podwire.protocols.nri import VERSION
from podwire.protocols.nri.events import ALL_EVENTS

REGISTER = "RegisterPlugin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The identity of the plugin, and its rules by call."""

    name: str = "fake"
    index: str = "50"
    version: str = VERSION
    events: int = ALL_EVENTS
    """The mask of its Configure response; sent as it is, valid or not."""
    calls: bool = True
    """Whether it implements the calls of NRI 0.12."""
    state_change: bool = True
    """Whether it implements StateChange."""
    reconnect: float | None = None
    """Seconds after which it connects again when the connection ended; None: it exits."""
    on: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)


class RuleQueue:
    """Chooses the rule for a call; rules with `times` are used up."""

    def __init__(self, script: Script) -> None:
        self._left: dict[str, list[tuple[Rule, int | None]]] = {
            call: [(rule, rule.times) for rule in rules] for call, rules in script.on.items()
        }

    def next(self, call: str, request: Any = None) -> Rule:
        pod, container = subject(request)
        for number, (rule, left) in enumerate(self._left.get(call, [])):
            if left != 0 and rule.matches(pod, container):
                self._left[call][number] = (rule, None if left is None else left - 1)
                return rule
        return GOOD


def subject(request: Any) -> tuple[str, str]:
    """The names of the pod and the container that a request is about."""
    fields = request.DESCRIPTOR.fields_by_name if request is not None else {}
    pod = request.pod.name if "pod" in fields else ""
    container = request.container.name if "container" in fields else ""
    return pod, container
