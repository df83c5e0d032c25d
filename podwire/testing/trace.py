"""The calls of a pod's trace as values, and assertions on them.

Participants and methods have the names of `podwire trace`: `CNIPlugin` gets `ADD bridge`, `ContainerRuntime` gets
`StartContainer`, a DRA driver gets `NodePrepareResources`. A method matches by its first word or as a whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    caller: str
    callee: str
    method: str
    began: float
    """Seconds since the epoch."""
    ended: float | None = None
    """None while it has not ended."""
    outcome: str = ""
    request: Mapping[str, Any] | None = None
    response: Mapping[str, Any] | None = None

    @property
    def stdin(self) -> Any:
        """The standard input of a CNI plugin, parsed."""
        return (self.request or {}).get("stdin")

    @property
    def stdout(self) -> Any:
        return (self.response or {}).get("stdout")

    def __str__(self) -> str:
        return f"{self.caller} -> {self.callee}: {self.method} ({self.outcome or 'not ended'})"


@dataclass(frozen=True, slots=True)
class Trace:
    calls: Sequence[Call]

    @classmethod
    def from_records(cls, records: Iterable[Mapping[str, Any]]) -> "Trace":
        """From `podwire trace --format json`: a call is a `begin` and an `end` with the same id."""
        begins: dict[str, Mapping[str, Any]] = {}
        ends: dict[str, Mapping[str, Any]] = {}
        for record in records:
            (ends if record["outcome"] not in ("", "event") else begins).setdefault(record["id"], record)
        calls = [_call(begin, ends.get(id_)) for id_, begin in begins.items()]
        return cls(sorted(calls, key=lambda call: call.began))

    def to(self, callee: str, method: str) -> list[Call]:
        """Returns the calls of a participant, in the order of their begin."""
        return [call for call in self.calls if call.callee == callee and _matches(call.method, method)]

    def assert_called(self, callee: str, method: str, *, outcome: str = "OK", **expected: Any) -> Call:
        """Asserts that there was a call with this outcome whose request has `expected`; returns the first.

        Mappings match when they have the expected keys: `stdin={"type": "bridge"}` leaves all other keys open.
        """
        calls = self.to(callee, method)
        for call in calls:
            request = call.request or {}
            if call.outcome == outcome and all(_has(request.get(key), value) for key, value in expected.items()):
                return call
        seen = [f"{call} {dict(call.request or {})}" for call in calls] or [str(call) for call in self.calls]
        missing = f"{callee} did not get {method} with {expected or 'any request'} and {outcome}"
        raise AssertionError("\n  ".join([f"{missing}; calls:", *seen]))

    def assert_not_called(self, callee: str, method: str) -> None:
        if calls := self.to(callee, method):
            raise AssertionError(f"{callee} got {method}: {calls[0]}")

    def assert_order(self, *steps: tuple[str, str]) -> None:
        """Asserts that each step, `(callee, method)`, ended before the next one began.

        Of a step, the last call that succeeded counts; of a step that follows another, the first call.
        """
        for (callee, method), (then_callee, then_method) in pairwise(steps):
            first = [call for call in self.to(callee, method) if call.outcome == "OK"]
            second = self.to(then_callee, then_method)
            if not first or not second:
                missing = f"{callee} {method}" if not first else f"{then_callee} {then_method}"
                raise AssertionError(f"the trace has no {missing}")
            ended = first[-1].ended
            if ended is None or second[0].began < ended:
                raise AssertionError(f"began before {first[-1]} ended: {second[0]}")

    def assert_attached_before_start(self, callee: str = "CNIPlugin", method: str = "ADD") -> None:
        """Asserts that no container started before the network or device was attached."""
        self.assert_order((callee, method), ("ContainerRuntime", "StartContainer"))


def _matches(method: str, wanted: str) -> bool:
    return method == wanted or method.partition(" ")[0] == wanted


def _has(actual: Any, expected: Any) -> bool:
    if isinstance(expected, Mapping):
        return isinstance(actual, Mapping) and all(_has(actual.get(key), value) for key, value in expected.items())
    return bool(actual == expected)


def _call(begin: Mapping[str, Any], end: Mapping[str, Any] | None) -> Call:
    return Call(
        caller=begin["from"],
        callee=begin["to"],
        method=begin["method"],
        began=begin["time"],
        ended=end["time"] if end else None,
        outcome=end["outcome"] if end else "",
        request=begin.get("detail"),
        response=end.get("detail") if end else None,
    )
