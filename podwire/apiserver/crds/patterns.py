"""Regular expressions of schemas. They are written for RE2; what Python reads otherwise is translated or refused."""

import re
from collections.abc import Callable

LONGEST_PATTERN = 2_000
LONGEST_VALUE = 16_384
"""Python's engine backtracks, RE2 does not: what is longer is refused rather than tried."""

_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_GROUP = re.compile(r"\(\?(?:(?P<plain>:)|P?<(?P<name>[A-Za-z_]\w*)>|(?P<flags>[ims]+)(?P<end>[):]))")
_REPEAT = re.compile(r"[*+?]|\{\d+(?:,\d*)?\}")
_HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_KNOWN_ESCAPES = "dDwWsSbBAafnrtv"
_SET_WORDS = "[&~|"
"""Characters that Python may one day read as operations on sets."""


class BadPattern(ValueError):
    """A pattern that cannot be used; says why."""


def compile_pattern(text: str) -> Callable[[str], object]:
    """The search for a pattern; raises BadPattern."""
    if len(text) > LONGEST_PATTERN:
        raise BadPattern(f"is longer than {LONGEST_PATTERN} characters")
    try:
        return re.compile(_Translation(text).run(), re.ASCII).search
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(str(error)) from error


class _Translation:
    """One walk over a pattern."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._multiline = False
        self._out: list[str] = []

    def run(self) -> str:
        while self._at < len(self._text):
            self._step()
        return "".join(self._out)

    def _step(self) -> None:
        here = self._text[self._at]
        if here == "\\":
            self._out.append(self._escape())
        elif here == "[":
            self._class()
        elif self._text.startswith("(?", self._at):
            self._group()
        elif found := _REPEAT.match(self._text, self._at):
            self._repeat(found[0])
        else:
            self._at += 1
            self._out.append(r"\Z" if here == "$" and not self._multiline else here)

    def _repeat(self, told: str) -> None:
        self._at += len(told)
        if self._text.startswith("?", self._at):
            told += "?"
            self._at += 1
        if _REPEAT.match(self._text, self._at):
            raise BadPattern(f"invalid nested repetition operator at {self._at}")
        self._out.append(told)

    def _escape(self) -> str:
        """A backslash and what belongs to it; only what both engines read alike."""
        start = self._at + 1
        self._at += 2
        word = self._text[start : start + 1]
        if found := _HEX.match(self._text, start):
            self._at = found.end()
            return _character(int(found[1] or found[2], 16))
        if word == "z":
            return r"\Z"
        if not word or word.isdigit() or (word.isalpha() and word not in _KNOWN_ESCAPES):
            raise BadPattern(f"the escape \\{word} is not supported" + " (back-reference)" * word.isdigit())
        return "\\" + word

    def _group(self) -> None:
        found = _GROUP.match(self._text, self._at)
        if found is None:
            raise BadPattern(f"look-around and other extensions are not supported: {self._text[self._at :][:4]}")
        if found["end"] == ")" and self._at:
            raise BadPattern("flags are supported at the start of a pattern only")
        self._multiline |= "m" in (found["flags"] or "")
        self._out.append(f"(?P<{found['name']}>" if found["name"] else found[0])
        self._at = found.end()

    def _class(self) -> None:
        """A character class, up to its bracket."""
        opening = re.compile(r"\[\^?\]?").match(self._text, self._at)
        told = opening[0] if opening else "["
        self._out.append(told.replace("]", r"\]"))
        self._at += len(told)
        while self._at < len(self._text):
            here = self._text[self._at]
            if here == "]":
                self._at += 1
                self._out.append("]")
                return
            self._out.append(self._class_member(here))
        raise BadPattern("missing closing ]")

    def _class_member(self, here: str) -> str:
        if here == "\\":
            return self._escape()
        if found := re.compile(r"\[:(\w+):\]").match(self._text, self._at):
            self._at = found.end()
            if found[1] not in _CLASSES:
                raise BadPattern(f"invalid character class range: {found[0]}")
            return _CLASSES[found[1]]
        self._at += 1
        doubled = here == "-" and self._text[self._at - 2] == "-"
        return "\\" + here if here in _SET_WORDS or doubled else here


def _character(code: int) -> str:
    if code > 0x10FFFF:
        raise BadPattern(f"invalid escape sequence: {code:x}")
    return re.escape(chr(code))
