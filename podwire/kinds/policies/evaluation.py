"""Evaluation of a policy for one request and one set of parameters: the validations that fail, and why."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from podwire.kinds.policies.expressions import Expression
from podwire.kinds.policies.policy import Compiled, Policy, Validation
from podwire.protocols.cel import CelError, Values
from podwire.protocols.k8sapi.status import Reason

SECONDS = 1.0
"""Processor time that all expressions of a policy may take together for one request."""
LONGEST_MESSAGE = 5 * 1024
LONGEST_ANNOTATION = 10 * 1024

SPENT = "validation failed due to running out of cost budget, no further validation rules will be run"


@dataclass(frozen=True, slots=True)
class Failure:
    """A violation of a policy by a request. `place` is the index of the validation."""

    message: str
    reason: Reason = Reason.INVALID
    place: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """`failures` are handled as the binding says, `broken` denies the request in any case."""

    failures: tuple[Failure, ...] = ()
    broken: tuple[Failure, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()


class Spent(Exception):
    """The policy has spent its time budget."""


class Scope:
    """The variables of the expressions of a policy; its own variables are computed on first use."""

    def __init__(self, known: Mapping[str, Any], variables: Mapping[str, Compiled]) -> None:
        self._known = known
        self._variables = variables
        self._computed: dict[str, Any] = {}
        self._failed: dict[str, CelError] = {}
        self._plain = Values(known)
        self._values: Values | None = None
        self._ends = time.thread_time() + SECONDS

    def run(self, expression: Compiled) -> Any | CelError:
        """Returns the value of an expression, or why it has none. Raises Spent."""
        if isinstance(expression, str):
            return CelError(expression)
        value = self._evaluated(expression)
        if not isinstance(value, CelError):
            return value
        if value.out_of_budget:
            raise Spent
        return CelError(f"expression '{expression.text}' resulted in error: {value}")

    def _evaluated(self, expression: Expression) -> Any | CelError:
        for name in expression.uses:
            self._compute(name)
        if time.thread_time() > self._ends:
            raise Spent
        value = expression.program.run(self._bound() if expression.uses else self._plain)
        if isinstance(value, CelError):
            # a variable without a value is missing: that is an error only where the expression gets to it
            for name in expression.uses:
                if name in self._failed and value.message == f"no such key: {name}":
                    return self._failed[name]
        return value

    def _compute(self, name: str) -> None:
        if name in self._computed or name in self._failed:
            return
        variable = self._variables.get(name, "it is not defined")
        if isinstance(variable, str):
            self._failed[name] = CelError(f'composited variable "{name}" fails to compile: {variable}')
            return
        value = self._evaluated(variable)
        if isinstance(value, CelError):
            if value.out_of_budget:
                raise Spent
            self._failed[name] = CelError(f'composited variable "{name}" fails to evaluate: {value}')
        else:
            self._computed[name] = _kept(value)
            self._values = None

    def _bound(self) -> Values:
        if self._values is None:
            self._values = Values({**self._known, "variables": dict(self._computed)})
        return self._values


def _kept(value: Any) -> Any:
    """Returns a value as expressions can be given it again."""
    from podwire.protocols.cel.environment import kept  # noqa: PLC0415 - protobuf, which comes with the first policy

    return bytes(value) if isinstance(value, bytearray) else kept(value)


def evaluate(policy: Policy, known: Mapping[str, Any]) -> Outcome:
    """Run a policy. Conditions see no namespace, as upstream has it."""
    try:
        applies = meets_conditions(policy, known) if policy.conditions else True
        if isinstance(applies, Failure):
            return Outcome((applies,))
        if not applies:
            return Outcome()
        scope = Scope(known, policy.variables)
        failures = tuple(_failures(policy, scope))
    except Spent:
        return Outcome((Failure(SPENT),) if policy.fails else ())
    return _annotated(policy, known, failures)


def meets_conditions(policy: Policy, known: Mapping[str, Any]) -> bool | Failure:
    """Returns whether all conditions hold. A false one outweighs others that cannot be evaluated. Raises Spent."""
    scope = Scope({**known, "namespaceObject": None}, {})
    outcomes = [scope.run(condition) for condition in policy.conditions]
    if any(outcome is False for outcome in outcomes):
        return False
    errors = list(dict.fromkeys(str(outcome) for outcome in outcomes if isinstance(outcome, CelError)))
    if not errors:
        return True
    text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
    return Failure(text) if policy.fails else False


def _failures(policy: Policy, scope: Scope) -> Iterator[Failure]:
    for place, validation in enumerate(policy.validations):
        outcome = scope.run(validation.holds)
        if isinstance(outcome, CelError):
            if policy.fails:
                yield Failure(str(outcome), place=place)
        elif outcome is not True:
            yield Failure(_message(validation, scope), validation.reason, place)


def _message(validation: Validation, scope: Scope) -> str:
    """Returns the message of a validation: that of its messageExpression if it is one line of allowed length."""
    if validation.message_expression is not None:
        message = scope.run(validation.message_expression)
        text = message.strip() if isinstance(message, str) else ""
        if text and "\n" not in text and len(text.encode()) <= LONGEST_MESSAGE:
            return text
    return validation.message or f"failed expression: {validation.text.strip()}"


def _annotated(policy: Policy, known: Mapping[str, Any], failures: tuple[Failure, ...]) -> Outcome:
    """Returns the outcome with audit annotations, which have a budget of their own."""
    if not policy.annotations:
        return Outcome(failures)
    annotations, broken = [], []
    scope = Scope(known, policy.variables)
    try:
        for key, expression in policy.annotations:
            value = scope.run(expression)
            if isinstance(value, CelError):
                broken.append(Failure(str(value)))
            elif isinstance(value, str) and value.strip():
                annotations.append((key, value.strip()[:LONGEST_ANNOTATION]))
    except Spent:
        return Outcome((*failures, Failure(SPENT)) if policy.fails else failures)
    return Outcome(failures, tuple(broken) if policy.fails else (), tuple(annotations))
