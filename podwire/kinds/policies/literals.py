"""Message literals of mutations, `Object.spec{replicas: 3}` and `JSONPatch{op: "add"}`, written as maps.

The CEL library knows messages only by their protobuf descriptors, and these have none: any field is allowed, and the
name repeats where the literal is. Each literal becomes a map whose values are `dyn`, so that its fields may differ in
type; the names are checked here. Texts and comments are left alone.
"""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<text>[rRbB]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<quoted>`[^`\n]*`)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\d[\w.]*)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ROOTS = ("Object", "JSONPatch")
DEEPEST = 64


class BadLiteral(ValueError):
    """A literal whose name is not that of its place."""


@dataclass(slots=True)
class _Open:
    """A bracket that is open; `name` is the type of a message literal."""

    closing: str
    name: str = ""
    field: str = ""
    wrapped: bool = False
    """The value of the present field is within `dyn(`."""
    expects_field: bool = False


_CLOSING = {"{": "}", "(": ")", "[": "]"}


def as_maps(expression: str) -> str:
    """Returns an expression whose message literals are maps. Raises BadLiteral."""
    tokens = [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(expression)]
    out: list[str] = []
    opened: list[_Open] = []
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        inner = opened[-1] if opened else None
        if kind == "word" and text in _ROOTS and _previous(out) != ".":
            name, end = _literal_name(tokens, at)
            if name:
                _check(name, opened)
                out.append("{")
                opened.append(_Open("}", name, expects_field=True))
                if len(opened) > DEEPEST:
                    raise BadLiteral(f"expressions may be nested {DEEPEST} deep at most")
                at = end
                continue
        if inner is not None and inner.expects_field and kind in ("word", "quoted"):
            at = _begin_field(tokens, at, inner, out)
            continue
        if kind == "other":
            _bracket(text, opened, out)
        out.append(text)
        at += 1
    return "".join(out)


def _bracket(text: str, opened: list[_Open], out: list[str]) -> None:
    """Follows brackets and commas; ends the value of a field."""
    inner = opened[-1] if opened else None
    if text in _CLOSING:
        opened.append(_Open(_CLOSING[text]))
    elif inner is not None and text in (inner.closing, ","):
        if inner.name:
            if inner.wrapped:
                out.append(")")
            inner.wrapped, inner.expects_field = False, text == ","
        if text == inner.closing:
            opened.pop()


def _previous(out: list[str]) -> str:
    return next((text for text in reversed(out) if text.strip()), "")


def _literal_name(tokens: list[tuple[str, str]], at: int) -> tuple[str, int]:
    """Returns the name of the literal that begins here, and the token behind its brace; no name if there is none."""
    name = tokens[at][1]
    at += 1
    while at + 1 < len(tokens) and tokens[at][1] == "." and tokens[at + 1][0] in ("word", "quoted"):
        name += f".{tokens[at + 1][1].strip('`')}"
        at += 2
    while at < len(tokens) and tokens[at][0] == "space":
        at += 1
    return (name, at + 1) if at < len(tokens) and tokens[at][1] == "{" else ("", at)


def _check(name: str, opened: list[_Open]) -> None:
    if not name.startswith("Object"):
        return
    outer = next((bracket for bracket in reversed(opened) if bracket.name.startswith("Object")), None)
    expected = f"{outer.name}.{outer.field}" if outer is not None else ""
    if expected and name != expected:
        raise BadLiteral(
            f'type mismatch: unexpected type name "{name}", expected "{expected}", which matches field name path from '
            "root Object type"
        )


def _begin_field(tokens: list[tuple[str, str]], at: int, inner: _Open, out: list[str]) -> int:
    """Writes the name of a field as a key, and begins its value; an optional field's value is not wrapped."""
    inner.field, inner.expects_field = tokens[at][1].strip("`"), False
    optional = _previous(out) == "?"
    out.append(f'"{inner.field}"')
    at += 1
    while at < len(tokens) and tokens[at][0] == "space":
        out.append(tokens[at][1])
        at += 1
    if at < len(tokens) and tokens[at][1] == ":":
        inner.wrapped = not optional
        out.append(":" if optional else ": dyn(")
        at += 1
    return at
