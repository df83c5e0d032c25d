"""Regular expressions of schemas, in RE2's syntax: read here, matched by `automaton`.

A character is tested with a one-character expression of Python's, to which classes are translated; nothing that could
go more than one way is left to it. What RE2 has and this has not (scripts as `\\p{Greek}`, `\\Q…\\E`) is refused.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from podwire.kinds.crds import automaton
from podwire.kinds.crds.automaton import Assertion, Automaton, Place, Program, Test, TooLarge

LONGEST_PATTERN = 2_000
DEEPEST = 100
MOST_REPEATS = 1_000
"""RE2's own limit for counted repetitions."""

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
_GROUP = re.compile(r"\(\?(?:P?<(?P<name>[A-Za-z_]\w*)>|(?P<on>[imsU]*)(?:-(?P<off>[imsU]+))?(?P<end>[):]))", re.ASCII)
_REPEAT = re.compile(r"[*+?]|\{([0-9]+)(?:(,)([0-9]*))?\}")
_HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_CATEGORY = re.compile(r"\\([pP])(?:([A-Z])|\{(\^?)([A-Z][a-z]?)\})")
_CATEGORIES = frozenset({
    "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl",
    "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs",
})  # fmt: skip
"""Unicode's, but for unassigned characters, which RE2 does not know."""
_OPENING = re.compile(r"\[\^?\]?")
_NAMED = re.compile(r"\[:(\^?)(\w+):\]")
_CHARACTER_ESCAPES = "dDwWsSafnrtv"
_ASSERTIONS = {
    "A": automaton.TEXT_BEGINS,
    "z": automaton.TEXT_ENDS,
    "b": automaton.WORD_BOUNDARY,
    "B": automaton.NO_WORD_BOUNDARY,
}
_SET_WORDS = "[&~|"
"""Characters that Python may one day read as operations on sets."""


class BadPattern(ValueError):
    """A pattern that cannot be used; says why."""


Emit = Callable[[Program, int], int]
"""Adds a part of a pattern to a program, to be gone on from a place; the place where the part ends."""


def compile_pattern(text: str) -> Callable[[str], bool]:
    """The search for a pattern; raises BadPattern. A search raises automaton.TooCostly."""
    if len(text) > LONGEST_PATTERN:
        raise BadPattern(f"is longer than {LONGEST_PATTERN} characters")
    emit = _Parser(text).whole()
    program = Program()
    try:
        program.end = emit(program, 0)
    except TooLarge as error:
        raise BadPattern(str(error)) from error
    return Automaton(program).search


@dataclass(frozen=True, slots=True)
class _Flags:
    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False
    """Which repetition is preferred makes no difference to whether there is a match."""


@dataclass(frozen=True, slots=True)
class _Repetition:
    least: int
    most: int | None


class _Parser:
    """Reads a pattern from left to right, a group at a time."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def whole(self) -> Emit:
        emit = self._alternatives(_Flags(), 0)
        if self._at < len(self._text):
            raise BadPattern(f"unexpected ) at {self._at}")
        return emit

    def _alternatives(self, flags: _Flags, depth: int) -> Emit:
        """`a|b|c`, up to the end of the group or of the text."""
        if depth > DEEPEST:
            raise BadPattern(f"is nested more than {DEEPEST} groups deep")
        choices: list[list[Emit]] = [[]]
        while self._at < len(self._text) and self._text[self._at] != ")":
            if self._text[self._at] == "|":
                self._at += 1
                choices.append([])
            elif found := self._flags(flags):
                flags = found
            else:
                choices[-1].append(self._repeated(self._part(flags, depth)))
        return choice([sequence(each) for each in choices])

    def _flags(self, flags: _Flags) -> _Flags | None:
        """`(?i)`: flags for the rest of the group."""
        found = _GROUP.match(self._text, self._at)
        if found is None or found["end"] != ")":
            return None
        self._at = found.end()
        return _set(flags, found)

    def _part(self, flags: _Flags, depth: int) -> Emit:
        here = self._text[self._at]
        if here == "(":
            return self._group(flags, depth)
        if here == "\\":
            return self._escaped(flags)
        if here == "[":
            return self._class(flags)
        if _REPEAT.match(self._text, self._at):
            raise BadPattern(f"missing argument to repetition operator at {self._at}")
        self._at += 1
        if here == "^":
            return asserting(automaton.LINE_BEGINS if flags.m else automaton.TEXT_BEGINS)
        if here == "$":
            return asserting(automaton.LINE_ENDS if flags.m else automaton.TEXT_ENDS)
        if here == ".":
            return reading(r"[\s\S]" if flags.s else r"[^\n]", False)
        return reading(re.escape(here), flags.i)

    def _repeated(self, part: Emit) -> Emit:
        found = _REPEAT.match(self._text, self._at)
        if found is None:
            return part
        self._at = found.end() + self._text.startswith("?", found.end())
        if _REPEAT.match(self._text, self._at):
            raise BadPattern(f"invalid nested repetition operator at {self._at}")
        return repeat(part, _repetition(found))

    def _group(self, flags: _Flags, depth: int) -> Emit:
        begun = self._at
        if self._text.startswith("(?", begun):
            found = _GROUP.match(self._text, begun)
            if found is None:
                raise BadPattern(f"look-around and other extensions are not supported: {self._text[begun:][:4]}")
            self._at = found.end()
            flags = _set(flags, found)
        else:
            self._at += 1
        inside = self._alternatives(flags, depth + 1)
        if self._at >= len(self._text):
            raise BadPattern(f"missing closing ) of the group at {begun}")
        self._at += 1
        return inside

    def _escaped(self, flags: _Flags) -> Emit:
        word = self._text[self._at + 1 : self._at + 2]
        if word in _ASSERTIONS:
            self._at += 2
            return asserting(_ASSERTIONS[word])
        if category := self._category(flags):
            return reading_by(category)
        return reading(self._escape(), flags.i)

    def _category(self, flags: _Flags) -> Test | None:
        """`\\p{Lu}`: a character of a Unicode category, or with `\\P` of any other."""
        found = _CATEGORY.match(self._text, self._at)
        if found is None:
            return None
        name = found[2] or found[4]
        if name not in _CATEGORIES or flags.i:
            raise BadPattern(f"invalid character class range: {found[0]}")
        self._at = found.end()
        return _of_category(name, (found[1] == "P") != bool(found[3]))

    def _escape(self) -> str:
        """A backslash and what belongs to it, as Python reads it; only what both engines read alike."""
        start = self._at + 1
        self._at += 2
        word = self._text[start : start + 1]
        if found := _HEX.match(self._text, start):
            self._at = found.end()
            return _character(int(found[1] or found[2], 16))
        if not word or word.isdigit() or (word.isalpha() and word not in _CHARACTER_ESCAPES):
            raise BadPattern(f"the escape \\{word} is not supported" + " (back-reference)" * word.isdigit())
        return "\\" + word

    def _class(self, flags: _Flags) -> Emit:
        """A character class, up to its bracket: as Python reads it, beside categories, which Python does not know."""
        opening = _OPENING.match(self._text, self._at)
        told = opening[0] if opening else "["
        out = [r"\]"] if told.endswith("]") else []
        categories: list[Test] = []
        self._at += len(told)
        while self._at < len(self._text):
            here = self._text[self._at]
            if here == "]":
                self._at += 1
                return _any_of("".join(out), categories, told.startswith("[^"), flags)
            if category := self._category(flags):
                categories.append(category)
            else:
                out.append(self._class_member(here))
        raise BadPattern("missing closing ]")

    def _class_member(self, here: str) -> str:
        if here == "\\":
            return self._escape()
        if found := _NAMED.match(self._text, self._at):
            self._at = found.end()
            if found[2] not in _CLASSES or found[1]:
                raise BadPattern(f"invalid character class range: {found[0]}")
            return _CLASSES[found[2]]
        self._at += 1
        doubled = here == "-" and self._text[self._at - 2] == "-"
        return "\\" + here if here in _SET_WORDS or doubled else here


def _set(flags: _Flags, found: re.Match[str]) -> _Flags:
    changed = {**dict.fromkeys(found["on"] or "", True), **dict.fromkeys(found["off"] or "", False)}
    return replace(flags, **changed) if changed else flags


def _repetition(found: re.Match[str]) -> _Repetition:
    if found[0] in "*+?":
        return _Repetition(int(found[0] == "+"), 1 if found[0] == "?" else None)
    if len(found[0]) > 16:
        raise BadPattern(f"invalid repeat count: {found[0][:20]}")
    least = int(found[1])
    most = least if not found[2] else int(found[3]) if found[3] else None
    if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
        raise BadPattern(f"invalid repeat count: {found[0]}")
    return _Repetition(least, most)


def _character(code: int) -> str:
    if code > 0x10FFFF:
        raise BadPattern(f"invalid escape sequence: {code:x}")
    return re.escape(chr(code))


# Parts of programs


def reading(expression: str, ignore_case: bool) -> Emit:
    """One character that Python's one-character expression matches."""
    return reading_by(_test(expression, ignore_case))


def _of_category(name: str, negated: bool) -> Test:
    return lambda character: unicodedata.category(character).startswith(name) != negated


def _any_of(members: str, categories: list[Test], negated: bool, flags: _Flags) -> Emit:
    if not categories:
        return reading(f"[{'^' if negated else ''}{members}]", flags.i)
    tests = [*categories, _test(f"[{members}]", flags.i)] if members else categories
    return reading_by(lambda character: any(test(character) for test in tests) != negated)


def reading_by(test: Test) -> Emit:
    """One character that a test lets pass."""

    def emit(program: Program, start: int) -> int:
        end = program.add(Place([]))
        program.places[start].next.append(program.add(Place([end], test=test)))
        return end

    return emit


@lru_cache(maxsize=4096)
def _test(expression: str, ignore_case: bool) -> Test:
    try:
        return re.compile(expression, re.ASCII | (re.IGNORECASE if ignore_case else 0)).fullmatch
    except (re.error, OverflowError) as error:
        raise BadPattern(str(error)) from error


def asserting(assertion: Assertion) -> Emit:
    def emit(program: Program, start: int) -> int:
        end = program.add(Place([]))
        program.places[start].next.append(program.add(Place([end], condition=assertion)))
        return end

    return emit


def sequence(parts: list[Emit]) -> Emit:
    def emit(program: Program, start: int) -> int:
        for each in parts:
            start = each(program, start)
        return start

    return emit


def choice(parts: list[Emit]) -> Emit:
    if len(parts) == 1:
        return parts[0]

    def emit(program: Program, start: int) -> int:
        end = program.add(Place([]))
        for each in parts:
            begin = program.add(Place([]))
            program.places[start].next.append(begin)
            program.places[each(program, begin)].next.append(end)
        return end

    return emit


def repeat(part: Emit, times: _Repetition) -> Emit:
    """As often as it must be, then as often as it may be: each copy can be left out with all behind it."""

    def emit(program: Program, start: int) -> int:
        for _ in range(times.least):
            start = part(program, start)
        end = program.add(Place([]))
        if times.most is None:
            begin = program.add(Place([end]))
            program.places[start].next.append(begin)
            program.places[part(program, begin)].next.append(begin)
            return end
        for _ in range(times.most - times.least):
            program.places[start].next.append(end)
            start = part(program, start)
        program.places[start].next.append(end)
        return end

    return emit
