"""Label and field selectors: from a query parameter or from an object's own words to a test on labels or fields."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podwire.objects import names

LONGEST = 64 * 1024
"""A selector text above this is refused before it is read."""
MOST_REQUIREMENTS = 1000


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label. The operator is one of `=`, `!=`, `in`, `notin`, `exists`, `!`, `>` and `<`."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return _TESTS[self.operator](labels.get(self.key), self.values)

    def __str__(self) -> str:
        if self.operator == "exists":
            return self.key
        if self.operator == "!":
            return f"!{self.key}"
        values = ",".join(sorted(self.values))
        if self.operator in ("in", "notin"):
            return f"{self.key} {self.operator} ({values})"
        return f"{self.key}{self.operator}{values}"


def _greater(value: str | None, values: frozenset[str]) -> bool:
    label, limit = _integers(value, values)
    return label is not None and limit is not None and label > limit


def _less(value: str | None, values: frozenset[str]) -> bool:
    label, limit = _integers(value, values)
    return label is not None and limit is not None and label < limit


def _integers(value: str | None, values: frozenset[str]) -> tuple[int | None, int | None]:
    return _integer(value or ""), _integer(next(iter(values), ""))


def _integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None


_TESTS: Mapping[str, Callable[[str | None, frozenset[str]], bool]] = {
    "=": lambda value, values: value in values,
    "in": lambda value, values: value in values,
    "!=": lambda value, values: value not in values,
    "notin": lambda value, values: value not in values,
    "exists": lambda value, _values: value is not None,
    "!": lambda value, _values: value is None,
    ">": _greater,
    "<": _less,
}


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements together; none of them selects everything. `nothing` selects no object at all."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.nothing:
            return False
        for requirement in self.requirements:
            if not _TESTS[requirement.operator](labels.get(requirement.key), requirement.values):
                return False
        return True

    @property
    def everything(self) -> bool:
        return not self.requirements and not self.nothing

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


EVERYTHING = LabelSelector()
NOTHING = LabelSelector(nothing=True)

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def from_object(selector: Mapping[str, Any] | None) -> LabelSelector:
    """The selector of an object's field (matchLabels, matchExpressions): None selects nothing, {} everything.

    Raises ValueError for one that no validation has seen.
    """
    if selector is None:
        return NOTHING
    requirements = [_requirement(key, "=", [value]) for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or []:
        operator = _OPERATORS.get(expression.get("operator", ""))
        if operator is None:
            raise ValueError(f'"{expression.get("operator", "")}" is not a valid label selector operator')
        requirements.append(_requirement(expression.get("key", ""), operator, expression.get("values") or []))
    return LabelSelector(_sorted(requirements))


def from_labels(labels: Mapping[str, str]) -> LabelSelector:
    """All of these labels: a Service's or a ReplicationController's selector."""
    return LabelSelector(_sorted([Requirement(key, "=", frozenset((value,))) for key, value in labels.items()]))


def parse_labels(text: str) -> LabelSelector:
    """A `labelSelector` parameter; raises ValueError with what was found and what expected."""
    if not text:
        return EVERYTHING
    if len(text) > LONGEST:
        raise ValueError(f"selector is longer than {LONGEST} characters")
    return LabelSelector(_sorted(_Parser(text).requirements()))


def _sorted(requirements: Sequence[Requirement]) -> tuple[Requirement, ...]:
    return tuple(sorted(requirements, key=lambda each: each.key))


def _requirement(key: str, operator: str, values: Sequence[str]) -> Requirement:
    """Checked as upstream does when it builds one."""
    problems = [_wrong("key", key, problem) for problem in _joined(names.qualified_name(key))]
    if operator in ("in", "notin") and not values:
        problems.append("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")
    if operator in ("exists", "!") and values:
        problems.append(
            f"values: Invalid value: {_listed(values)}: values set must be empty for exists and does not exist"
        )
    if operator in (">", "<") and _integer(values[0]) is None:
        problems.append(_wrong("values[0]", values[0], "for 'Gt', 'Lt' operators, the value must be an integer"))
    for index, value in enumerate(values):
        problems += [_wrong(f"values[{index}][{key}]", value, problem) for problem in _joined(names.label_value(value))]
    if problems:
        raise ValueError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return Requirement(key, operator, frozenset(values))


def _joined(problems: list[str]) -> list[str]:
    return ["; ".join(problems)] if problems else []


def _wrong(field: str, value: str, detail: str) -> str:
    return f'{field}: Invalid value: "{value}": {detail}'


def _listed(values: Sequence[str]) -> str:
    return "[" + ",".join(f'"{value}"' for value in values) + "]"


_TOKEN = re.compile(r"[ \t\r\n]*(?:(==|!=|[=!(),<>])|([^=!(),<> \t\r\n]+)|$)")
_WORD, _END = "word", "end"
_BINARY = {"in": "in", "notin": "notin", "=": "=", "==": "=", "!=": "!=", ">": ">", "<": "<"}
_BINARY_SHOWN = "in, notin, =, ==, !=, gt, lt"


class _Parser:
    """`requirement [, requirement]…`, where a requirement is `[!]key` or `key operator value(s)`."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._kind, self._text = next(self._tokens)

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if self._kind == _END:
            return found
        if self._kind not in (_WORD, "!"):
            raise self._unexpected("expected: !, identifier, or 'end of string'")
        while True:
            found.append(self._requirement())
            if len(found) > MOST_REQUIREMENTS:
                raise ValueError(f"selector has more than {MOST_REQUIREMENTS} requirements")
            if self._kind == _END:
                return found
            if self._kind != ",":
                raise self._unexpected("expected: ',' or 'end of string'")
            self._take()
            if self._kind not in (_WORD, "!"):
                raise self._unexpected("expected: identifier after ','")

    def _requirement(self) -> Requirement:
        try:
            negated = self._kind == "!"
            if negated:
                self._take()
            if self._kind != _WORD:
                raise self._unexpected("expected: identifier")
            key = self._take()
            if problems := names.qualified_name(key):
                raise ValueError(f'<nil>: Invalid value: "{key}": {"; ".join(problems)}')
            if negated or self._kind in (_END, ","):
                return _requirement(key, "!" if negated else "exists", [])
            operator = _BINARY.get(self._text if self._kind == _WORD else self._kind)
            if operator is None:
                raise self._unexpected(f"expected: {_BINARY_SHOWN}")
            self._take()
            return _requirement(key, operator, self._values() if operator in ("in", "notin") else [self._value()])
        except ValueError as error:
            raise ValueError(f"unable to parse requirement: {error}") from None

    def _value(self) -> str:
        if self._kind in (_END, ","):
            return ""
        if self._kind != _WORD:
            raise self._unexpected("expected: identifier")
        return self._take()

    def _values(self) -> list[str]:
        """`(a,b)`; where a value is missing, between or beside commas, it is the empty one."""
        if self._kind != "(":
            raise ValueError(f"found '{self._text}' expected: '('")
        self._take()
        values: dict[str, None] = {}
        while True:
            values[self._take() if self._kind == _WORD else ""] = None
            if self._kind == ")":
                self._take()
                return sorted(values)
            if self._kind != ",":
                raise self._unexpected(
                    "expected: ',', ')' or identifier"
                    if self._kind == _END and not any(values)
                    else "expected: ',' or ')'"
                )
            self._take()

    def _take(self) -> str:
        text = self._text
        self._kind, self._text = next(self._tokens, (_END, ""))
        return text

    def _unexpected(self, expected: str) -> ValueError:
        return ValueError(f"found '{self._text}', {expected}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while found := _TOKEN.match(text, position):
        symbol, word = found.groups()
        position = found.end()
        if symbol:
            yield symbol, symbol
        elif word:
            yield _WORD, word
        else:
            yield _END, ""
            return


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    field: str
    value: str
    equal: bool = True


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All requirements together; none of them selects everything."""

    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, values: Mapping[str, str]) -> bool:
        for requirement in self.requirements:
            if (values.get(requirement.field, "") == requirement.value) is not requirement.equal:
                return False
        return True

    def exact(self, field: str) -> str | None:
        """The one value that the field must have, if it must have one: a watch on a single name."""
        return next(
            (
                requirement.value
                for requirement in self.requirements
                if requirement.equal and requirement.field == field
            ),
            None,
        )

    def __str__(self) -> str:
        return ",".join(
            f"{requirement.field}{'=' if requirement.equal else '!='}{escape(requirement.value)}"
            for requirement in self.requirements
        )


_TERM = re.compile(r"(?:\\.|[^,\\]|\\$)+", re.DOTALL)
_OPERATOR = re.compile(r"!=|==|=")
_SPECIAL = re.compile(r"([\\,=])")
_ESCAPE = re.compile(r"\\(.?)|([,=])", re.DOTALL)


def parse_fields(text: str) -> FieldSelector:
    """A `fieldSelector` parameter: `a=b,c!=d`, with `\\`, `,` and `=` in values escaped. Raises ValueError."""
    if len(text) > LONGEST:
        raise ValueError(f"selector is longer than {LONGEST} characters")
    terms = _TERM.findall(text)
    if len(terms) > MOST_REQUIREMENTS:
        raise ValueError(f"selector has more than {MOST_REQUIREMENTS} requirements")
    requirements = []
    for term in terms:
        operator = _OPERATOR.search(term)
        if operator is None:
            raise ValueError(f"invalid selector: '{text}'; can't understand '{term}'")
        field, value = term[: operator.start()], unescape(term[operator.end() :])
        if field or value:
            requirements.append(FieldRequirement(field, value, operator[0] != "!="))
    return FieldSelector(tuple(requirements))


def escape(value: str) -> str:
    """A value as it stands in a field selector."""
    return _SPECIAL.sub(r"\\\1", value)


def unescape(value: str) -> str:
    return _ESCAPE.sub(_unescaped, value)


def _unescaped(found: re.Match[str]) -> str:
    escaped, bare = found.groups()
    if bare:
        raise ValueError(f"invalid field selector: unescaped character in value: {ord(bare)}")
    if escaped not in ("\\", ",", "=") or not escaped:
        raise ValueError(f"invalid field selector: invalid escape sequence: \\{escaped}")
    return str(escaped)
