"""Words of an instruction: quotes, escapes and variables, as in Docker's reference of Dockerfiles."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from podwire.protocols.containerfile.syntax import Instruction

LONGEST = 1 << 20
"""Characters of an expanded text."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPACE = re.compile(r"\s+")
_NESTED = 16


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform as `--platform` has it: linux/amd64, linux/arm64/v8."""

    os: str
    architecture: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(filter(None, (self.os, self.architecture, self.variant)))


def expand(instruction: Instruction, text: str, variables: Mapping[str, str]) -> str:
    """Returns a text with its variables replaced, its quotes and escapes removed. Raises BadContainerfile."""
    return "".join(_Lexer(instruction, text, variables).words(split=False))


def split(instruction: Instruction, text: str, variables: Mapping[str, str]) -> list[str]:
    """Returns the words of a text, likewise; white space outside of quotes separates them."""
    return _Lexer(instruction, text, variables).words(split=True)


def pairs(instruction: Instruction, variables: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns the pairs of ENV and LABEL: `NAME=VALUE …`, or `NAME VALUE`, an old form for one pair."""
    raw = _raw_words(instruction)
    if not raw:
        raise instruction.bad("needs NAME=VALUE")
    if "=" not in raw[0]:
        name, _, value = instruction.text.partition(" ")
        if not value.strip():
            raise instruction.bad(f"{name[:80]!r} has no value; write NAME=VALUE")
        return [(name, expand(instruction, value.strip(), variables))]
    result = []
    for word in raw:
        name, equals, value = word.partition("=")
        name = expand(instruction, name, variables)
        if not equals or not name:
            raise instruction.bad(f"{word[:80]!r} is not NAME=VALUE")
        result.append((name, expand(instruction, value, variables)))
    return result


def _raw_words(instruction: Instruction) -> list[str]:
    """Splits at white space outside of quotes, and keeps quotes and escapes."""
    words: list[str] = []
    word, quote, escaped = "", "", False
    for letter in instruction.text:
        if escaped or (letter == instruction.escape and quote != "'"):
            word, escaped = word + letter, not escaped
        elif letter.isspace() and not quote:
            words += [word] if word else []
            word = ""
        else:
            if letter in "'\"" and quote in ("", letter):
                quote = "" if quote else letter
            word += letter
    if quote:
        raise instruction.bad(f"a quote {quote} is not closed")
    return [*words, word] if word else words


class _Lexer:
    def __init__(self, instruction: Instruction, text: str, variables: Mapping[str, str], depth: int = 0) -> None:
        self._instruction = instruction
        self._text = text
        self._variables = variables
        self._depth = depth
        self._at = 0
        self._size = 0

    def words(self, *, split: bool) -> list[str]:
        words: list[str] = []
        word: list[str] = []
        begun = False  # an empty pair of quotes is a word, an empty variable is not
        while self._at < len(self._text):
            letter = self._text[self._at]
            if split and letter.isspace():
                self._at += 1
                words += ["".join(word)] if begun else []
                word, begun = [], False
            elif letter == "$":
                first, *more = _SPACE.split(self._variable()) if split else [self._variable()]
                word.append(first)
                begun = begun or bool(first)
                for part in more:
                    words += ["".join(word)] if begun else []
                    word, begun = [part], bool(part)
            else:
                word.append(self._plain(letter))
                begun = True
        return [*words, "".join(word)] if begun else words

    def _plain(self, letter: str) -> str:
        if letter == "'":
            return self._single_quoted()
        if letter == '"':
            return self._double_quoted()
        if letter == self._instruction.escape:
            self._at += 2
            return self._text[self._at - 1 : self._at]
        self._at += 1
        return letter

    def _single_quoted(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise self._instruction.bad("a quote ' is not closed")
        value = self._text[self._at + 1 : end]
        self._at = end + 1
        return value

    def _double_quoted(self) -> str:
        value: list[str] = []
        self._at += 1
        while self._at < len(self._text):
            letter = self._text[self._at]
            if letter == '"':
                self._at += 1
                return "".join(value)
            if letter == "$":
                value.append(self._variable())
                continue
            following = self._text[self._at + 1 : self._at + 2]
            if letter == self._instruction.escape and following in ('"', "$", self._instruction.escape):
                value.append(following)
                self._at += 2
                continue
            value.append(letter)
            self._at += 1
        raise self._instruction.bad('a quote " is not closed')

    def _variable(self) -> str:
        """Replaces `$NAME`, `${NAME}` and those with a default or an alternative."""
        self._at += 1
        if not self._text.startswith("{", self._at):
            match = _NAME.match(self._text, self._at)
            if match is None:
                return "$"
            self._at = match.end()
            return self._bounded(self._variables.get(match[0], ""))
        match = _NAME.match(self._text, self._at + 1)
        end = self._closing_brace()
        if match is None:
            raise self._instruction.bad(f"{self._text[self._at - 1 : end + 1][:80]!r} is not a variable")
        inside = self._text[match.end() : end]
        self._at = end + 1
        return self._bounded(self._modified(match[0], inside))

    def _closing_brace(self) -> int:
        depth = 0
        for at in range(self._at, len(self._text)):
            depth += {"{": 1, "}": -1}.get(self._text[at], 0)
            if not depth:
                return at
        raise self._instruction.bad("a brace { is not closed")

    def _modified(self, name: str, modifier: str) -> str:
        value = self._variables.get(name)
        if not modifier:
            return value or ""
        colon = modifier.startswith(":")
        sign, word = modifier[colon : colon + 1], modifier[colon + 1 :]
        given = bool(value) if colon else value is not None
        if sign not in ("-", "+", "?"):
            raise self._instruction.bad(f"${{{name}{modifier[:40]}}}: supported are :- :+ :? - + and ?")
        if sign == "?" and not given:
            raise self._instruction.bad(f"{name}: {self._nested(word) or 'is not set'}")
        if sign == "+":
            return self._nested(word) if given else ""
        return value or "" if given else self._nested(word)

    def _nested(self, word: str) -> str:
        if self._depth >= _NESTED:
            raise self._instruction.bad(f"variables are nested more than {_NESTED} deep")
        return "".join(_Lexer(self._instruction, word, self._variables, self._depth + 1).words(split=False))

    def _bounded(self, value: str) -> str:
        self._size += len(value)
        if self._size > LONGEST:
            raise self._instruction.bad(f"expands to more than {LONGEST} characters")
        return value
