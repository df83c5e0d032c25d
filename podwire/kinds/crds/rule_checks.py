"""Validation of x-kubernetes-validations: the form of the rules, their expressions, and their worst-case cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from podwire.kinds.crds.cel_types import LARGEST_REQUEST, Declared, declare
from podwire.kinds.crds.rules import WORD, BadFieldPath, compile_rules, normalized_path, run_rules, variables
from podwire.kinds.crds.unordered_lists import misuses
from podwire.protocols.cel import CompileError, Program, Unavailable, compile_expression
from podwire.protocols.cel.cost import MOST, Size, estimate
from podwire.protocols.k8sapi.status import FieldError, forbidden, invalid, not_supported, required

Json = Mapping[str, Any]

COST_OF_A_RULE = 10_000_000
COST_OF_A_SCHEMA = 100_000_000
DEAREST = 4
"""Rules that are named when all together exceed the budget."""

REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_TEXTS = ("rule", "message", "messageExpression", "reason", "fieldPath")


def form_errors(schema: Json, path: str) -> list[FieldError]:
    """Returns the errors in the form of the rules of one schema, before any expression is compiled."""
    rules = schema.get(WORD)
    if rules is None:
        return []
    if not isinstance(rules, list):
        return [invalid(f"{path}.{WORD}", rules, "must be a list of rules")]
    errors: list[FieldError] = []
    for index, rule in enumerate(rules):
        where = f"{path}.{WORD}[{index}]"
        if not isinstance(rule, dict) or any(not isinstance(rule.get(word, ""), str) for word in _TEXTS):
            errors.append(invalid(where, rule, "must be a rule"))
        else:
            errors += [*_texts(rule, where), *_field_path(rule, schema, where)]
    return errors


def _texts(rule: Json, where: str) -> Iterator[FieldError]:
    expression, message = rule.get("rule", "").strip(), rule.get("message", "")
    if not expression:
        yield required(f"{where}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid(f"{where}.message", message, "must be non-empty if specified")
    elif _lines(message.strip()):
        yield invalid(f"{where}.message", message, "must not contain line breaks")
    elif _lines(expression) and not message.strip():
        yield required(f"{where}.message", "message must be specified if rule contains line breaks")
    if rule.get("messageExpression") and not rule["messageExpression"].strip():
        yield required(f"{where}.messageExpression", "messageExpression must be non-empty if specified")
    if rule.get("reason") is not None and rule["reason"] not in REASONS:
        yield not_supported(f"{where}.reason", rule["reason"], REASONS)


def _field_path(rule: Json, schema: Json, where: str) -> Iterator[FieldError]:
    path = rule.get("fieldPath", "")
    if not path:
        return
    if not path.strip():
        yield invalid(f"{where}.fieldPath", path, "must be non-empty if specified")
    if _lines(path):
        yield invalid(f"{where}.fieldPath", path, "must not contain line breaks")
    try:
        normalized_path(path, schema)
    except BadFieldPath as error:
        yield invalid(f"{where}.fieldPath", path, str(error))


def _lines(text: str) -> bool:
    return "\n" in text or "\r" in text


def rule_errors(schema: Json, path: str) -> list[FieldError]:
    """Returns the errors in the expressions of the rules of a structural schema, and in their total cost."""
    result = _RuleCosts()
    _walk(_Place(schema, path), result)
    if result.total <= COST_OF_A_SCHEMA:
        return result.errors or _wrong_defaults(schema, path)
    dearest = sorted(result.costs, key=lambda each: -each[1])[:DEAREST]
    words = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
    result.errors += [forbidden(where, words) for where, cost in dearest if cost >= COST_OF_A_SCHEMA // 100]
    words = f"{WORD} estimated rule cost total for entire OpenAPIv3 schema"
    result.errors.append(forbidden(path, _too_dear(words, result.total, COST_OF_A_SCHEMA)))
    return result.errors


@dataclass(slots=True)
class _RuleCosts:
    errors: list[FieldError] = field(default_factory=list)
    costs: list[tuple[str, int]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return min(sum(cost for _, cost in self.costs), MOST)


@dataclass(frozen=True, slots=True)
class _Place:
    """A schema within another: `times` is how often a value of it can be there, None when nothing limits it;
    `unordered` is the list, if any, within which it is not known what was what before."""

    schema: Json
    path: str
    times: int | None = 1
    unordered: str = ""
    root: bool = True


def _walk(place: _Place, result: _RuleCosts) -> None:
    schema, path = place.schema, place.path
    if schema.get(WORD):
        _check_place(place, result)
    for name, property_ in (schema.get("properties") or {}).items():
        _walk(_under(property_, f"{path}.properties[{name}]", place.times, place.unordered), result)
    if isinstance(values := schema.get("additionalProperties"), dict):
        times = _times(place.times, schema.get("maxProperties"))
        _walk(_under(values, f"{path}.additionalProperties", times, place.unordered), result)
    if isinstance(items := schema.get("items"), dict):
        named = schema.get("x-kubernetes-list-type") == "map"
        unordered = place.unordered or ("" if named else path)
        _walk(_under(items, f"{path}.items", _times(place.times, schema.get("maxItems")), unordered), result)


def _wrong_defaults(schema: Json, path: str) -> list[FieldError]:
    """Returns errors for defaults that violate the rules of their own schema."""
    errors: list[FieldError] = []
    for part, where in _spine(schema, path):
        if "default" in part:
            tree = compile_rules(part, root=bool(part.get("x-kubernetes-embedded-resource")))
            errors += run_rules(tree, part["default"], path=f"{where}.default")
    return errors


def _spine(schema: Json, path: str) -> Iterator[tuple[Json, str]]:
    yield schema, path
    for name, property_ in (schema.get("properties") or {}).items():
        yield from _spine(property_, f"{path}.properties[{name}]")
    for word in ("additionalProperties", "items"):
        if isinstance(each := schema.get(word), dict):
            yield from _spine(each, f"{path}.{word}")


def _under(schema: Json, path: str, times: int | None, unordered: str) -> _Place:
    return _Place(schema, path, times, unordered, root=bool(schema.get("x-kubernetes-embedded-resource")))


def _times(outer: int | None, most: Any) -> int | None:
    return None if outer is None or not isinstance(most, int) else min(outer * max(most, 0), MOST)


def _check_place(place: _Place, result: _RuleCosts) -> None:
    declared = declare(place.schema, root=place.root)
    if declared is None:
        reason = "rules cannot be used on a schema that does not say what its values are"
        result.errors.append(forbidden(f"{place.path}.{WORD}", reason))
        return
    for index, rule in enumerate(place.schema[WORD]):
        where = f"{place.path}.{WORD}[{index}]"
        try:
            _compile(rule, where, place, declared, result)
        except Unavailable as error:
            result.errors.append(forbidden(where, str(error)))


def _compile(rule: Json, where: str, place: _Place, declared: Declared, result: _RuleCosts) -> None:
    times = place.times if place.times is not None else LARGEST_REQUEST // (declared.least + 1)
    context = (place.schema, declared)
    program = _checked(rule, "rule", where, context, result)
    if program is None:
        return
    _observe(program, "estimated rule cost", f"{where}.rule", times, declared, result)
    if rule.get("messageExpression"):
        message = _checked(rule, "messageExpression", where, context, result)
        if message is not None:
            _observe(message, "estimated messageExpression cost", f"{where}.messageExpression", 1, declared, result)
    if "oldSelf" in program.names:
        if place.unordered:
            detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.unordered}"
            result.errors.append(invalid(f"{where}.rule", rule["rule"], detail))
    elif rule.get("optionalOldSelf") is not None:
        detail = "may not be set if oldSelf is not used in rule"
        result.errors.append(invalid(f"{where}.optionalOldSelf", rule["optionalOldSelf"], detail))


_MUST_BE = {
    "rule": ("bool", "cel expression must evaluate to a bool", ""),
    "messageExpression": ("string", "messageExpression must evaluate to a string", "messageExpression "),
}


def _checked(rule: Json, word: str, where: str, context: tuple[Json, Declared], result: _RuleCosts) -> Program | None:
    schema, declared = context
    returns, otherwise, prefix = _MUST_BE[word]
    try:
        program = compile_expression(rule[word], variables(declared, rule))
    except CompileError as error:
        result.errors.append(invalid(f"{where}.{word}", rule, f"{prefix}compilation failed: {error}"))
        return None
    if program.returns != returns:
        result.errors.append(invalid(f"{where}.{word}", rule, otherwise))
        return None
    if wrong := list(misuses(program.tree.root, schema)):
        problem = CompileError(rule[word], [program.problem(node, why) for node, why in wrong])
        result.errors.append(invalid(f"{where}.{word}", rule, f"{prefix}compilation failed: {problem}"))
        return None
    return program


def _observe(program: Program, name: str, where: str, times: int, declared: Declared, result: _RuleCosts) -> None:
    old = Size(1, declared.size)  # an optional one is in a list of its own
    sizes = {"self": declared.size, "oldSelf": declared.size, "__optional_oldSelf": old}
    cost = min(estimate(program.tree, sizes) * times, MOST)
    result.costs.append((where, cost))
    if cost > COST_OF_A_RULE:
        result.errors.append(forbidden(where, _too_dear(name, cost, COST_OF_A_RULE)))


def _too_dear(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    excess = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{name} exceeds budget by factor of {excess} (try simplifying the rule, or adding maxItems, maxProperties, "
        "and maxLength where arrays, maps, and strings are declared)"
    )
