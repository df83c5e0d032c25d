"""x-kubernetes-validations: the rules of a schema, compiled once and run over every object that is written."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.kinds.crds.cel_types import Declared, declare
from podwire.kinds.crds.checks import NOWHERE, child
from podwire.kinds.crds.correlation import Align, aligning, map_keys, name_of
from podwire.protocols.cel import CelError, Program, Values, compile_expression
from podwire.protocols.cel.errors import OVERLOAD
from podwire.protocols.cel.types import Type, optional
from podwire.protocols.k8sapi.status import OMITTED, FieldError, Problem, duplicate, forbidden, invalid, required

Json = Mapping[str, Any]
WORD = "x-kubernetes-validations"
SECONDS = 1.0
"""Processor time that all rules of one object may take together."""

LONGEST_MESSAGE = 5 * 1024
_BLOCKING = (Problem.NOT_SUPPORTED, Problem.REQUIRED, Problem.TOO_LONG, Problem.TOO_MANY)
_NOT_RUN = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_SPENT = "validation failed due to running out of cost budget, no further validation rules will be run"

_STEP = re.compile(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def variables(declared: Declared, rule: Json) -> dict[str, Type]:
    """Returns the variables of an expression of a rule."""
    old = optional(declared.type) if rule.get("optionalOldSelf") else declared.type
    return {"self": declared.type, "oldSelf": old}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its program, and its message."""

    spec: Json
    program: Program
    message: Program | None
    field: str

    @property
    def name(self) -> str:
        """The name of the rule in errors."""
        return str(self.spec.get("message") or self.spec["rule"]).strip()

    @property
    def compares(self) -> bool:
        return "oldSelf" in self.program.names


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTree:
    """The rules of a schema and of all below it; absent where there are none."""

    kind: str
    declared: Declared
    rules: tuple[Rule, ...]
    align: Align | None
    keys: tuple[str, ...]
    properties: Mapping[str, "RuleTree"]
    values: "RuleTree | None"
    items: "RuleTree | None"


def compile_rules(schema: Json, *, root: bool = True) -> RuleTree | None:
    """Returns the rules of a valid schema; None when it has none."""
    items, values = schema.get("items"), schema.get("additionalProperties")
    properties = {
        name: tree for name, property_ in (schema.get("properties") or {}).items() if (tree := _under(property_))
    }
    below = _under(items), _under(values)
    rules = schema.get(WORD) or []
    if not rules and not properties and not any(below):
        return None
    declared = declare(schema, root=root)
    if declared is None:
        return None  # nothing that rules may speak of
    return RuleTree(
        kind=schema.get("type", ""),
        declared=declared,
        rules=tuple(_rule(rule, declared, schema) for rule in rules),
        align=aligning(schema) if rules else None,
        keys=map_keys(schema),
        properties=properties,
        items=below[0],
        values=below[1],
    )


def count_rules(schema: Json) -> int:
    """Returns how many rules a schema and all below it have."""
    below = [schema.get("items"), schema.get("additionalProperties"), *(schema.get("properties") or {}).values()]
    return len(schema.get(WORD) or ()) + sum(count_rules(part) for part in below if isinstance(part, dict))


def _under(schema: Any) -> RuleTree | None:
    if not isinstance(schema, dict):
        return None
    return compile_rules(schema, root=bool(schema.get("x-kubernetes-embedded-resource")))


def _rule(rule: Json, declared: Declared, schema: Json) -> Rule:
    known = variables(declared, rule)
    message = rule.get("messageExpression")
    try:
        field = normalized_path(rule["fieldPath"], schema) if rule.get("fieldPath") else ""
    except BadFieldPath:
        field = ""
    return Rule(
        rule, compile_expression(rule["rule"], known), compile_expression(message, known) if message else None, field
    )


def run_rules(
    tree: RuleTree | None,
    new: Any,
    old: Any = None,
    before: Sequence[FieldError] = (),
    path: str = "",
    *,
    seconds: float = SECONDS,
) -> list[FieldError]:
    """Returns the violations of the rules by a value. Errors that the schema itself reported (`before`) can keep rules
    from being run. `old` is the previous value, None for a new one."""
    if tree is None:
        return []
    if any(error.problem in _BLOCKING or "must be of type" in error.detail for error in before):
        return [invalid(NOWHERE, None, _NOT_RUN)]
    run = _Run(time.thread_time() + seconds)
    run.walk(tree, path, new, old)
    return run.errors


class _Run:
    """One walk over an object."""

    def __init__(self, ends: float) -> None:
        self.errors: list[FieldError] = []
        self._ends = ends
        self._spent = False

    def walk(self, tree: RuleTree, path: str, new: Any, old: Any) -> None:
        if new is None or self._spent:
            return
        if tree.rules:
            self._evaluate(tree, path, new, old)
        for part, where, value, before in _parts(tree, path, new, old):
            self.walk(part, where, value, before)

    def _evaluate(self, tree: RuleTree, path: str, new: Any, old: Any) -> None:
        values: Values | CelError = _values(tree, new, old)
        for rule in tree.rules:
            if rule.compares and old is None and not rule.spec.get("optionalOldSelf"):
                continue  # there is no transition
            if time.thread_time() > self._ends:
                self._stop(invalid(path or NOWHERE, tree.kind, _SPENT))
                return
            outcome = values if isinstance(values, CelError) else rule.program.run(values)
            if isinstance(outcome, CelError):
                self._failed(rule, tree, path, outcome)
            elif outcome is not True and isinstance(values, Values):
                self.errors.append(_violation(rule, tree, path, new, _message(rule, values)))
            if self._spent:
                return

    def _failed(self, rule: Rule, tree: RuleTree, path: str, error: CelError) -> None:
        text = f"{error} evaluating rule: {rule.name}"
        if error.message == OVERLOAD:
            text = (
                f"'{error}': call arguments did not match a supported operator, function or macro signature for rule: "
                f"{rule.name}"
            )
        if error.out_of_budget:
            words = "no further validation rules will be run due to call cost exceeds limit for rule"
            text = f"'{error}': {words}: {rule.name}"
            self._spent = True
        self.errors.append(invalid(path or NOWHERE, tree.kind, text))

    def _stop(self, error: FieldError) -> None:
        self.errors.append(error)
        self._spent = True


def _values(tree: RuleTree, new: Any, old: Any) -> Values | CelError:
    convert = tree.declared.convert
    try:
        known = {"self": convert(new) if convert else new}
        if old is not None and any(rule.compares for rule in tree.rules):
            aligned = tree.align(old, new) if tree.align else old
            known["oldSelf"] = convert(aligned) if convert else aligned
    except ValueError as error:
        return CelError(str(error))
    return Values(known)


def _parts(tree: RuleTree, path: str, new: Any, old: Any) -> Iterator[tuple[RuleTree, str, Any, Any]]:
    """Yields the parts of a value that have rules, each with its previous value."""
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        for name, value in new.items():
            if (each := tree.properties.get(name)) is not None:
                yield each, child(path, name), value, before.get(name)
            elif tree.values is not None:
                yield tree.values, f"{path}[{name}]", value, before.get(name)
    elif isinstance(new, list) and tree.items is not None:
        known = {}
        if tree.keys and isinstance(old, list):
            known = {name_of(tree.keys, element): element for element in old}
        for index, value in enumerate(new):
            yield tree.items, f"{path}[{index}]", value, known.get(name_of(tree.keys, value)) if known else None


def _message(rule: Rule, values: Values) -> str:
    """Returns the rule's message: that of its messageExpression if it is one line of allowed length."""
    if rule.message is not None:
        message = rule.message.run(values)
        text = message.strip() if isinstance(message, str) else ""
        if text and "\n" not in text and len(text.encode()) <= LONGEST_MESSAGE:
            return text
    return str(rule.spec.get("message") or f"failed rule: {rule.name}").strip()


def _violation(rule: Rule, tree: RuleTree, path: str, value: Any, message: str) -> FieldError:
    where = (child(path, rule.field) if rule.field else path) or NOWHERE
    shown = OMITTED if tree.kind in ("array", "object") else value
    match rule.spec.get("reason"):
        case "FieldValueForbidden":
            return forbidden(where, message)
        case "FieldValueRequired":
            return required(where, message)
        case "FieldValueDuplicate":
            return duplicate(where, shown)
        case _:
            return invalid(where, shown, message)


class BadFieldPath(ValueError):
    """A path that does not exist in its schema."""


def normalized_path(path: str, schema: Json) -> str:
    """Returns the path as errors show it, without its first dot. Raises BadFieldPath."""
    place, shown = 0, ""
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None:
            raise BadFieldPath("must be a valid path")
        name = step[1] if step[1] is not None else _ESCAPE.sub(_unescaped, step[2])
        schema, named = _entered(schema, name)
        shown += f".{name}" if named else f"[{name}]"
        place = step.end()
    return shown.removeprefix(".")


def _entered(schema: Json, name: str) -> tuple[Json, bool]:
    """Returns the schema of a field, or of a map's values."""
    properties, values = schema.get("properties"), schema.get("additionalProperties")
    if properties:
        if name in properties:
            return properties[name], True
    elif isinstance(values, dict):
        return values, False
    raise BadFieldPath("must be a valid path")


def _unescaped(match: re.Match[str]) -> str:
    if match[1] not in _ESCAPES:
        raise BadFieldPath("must be a valid path")
    return _ESCAPES[match[1]]
