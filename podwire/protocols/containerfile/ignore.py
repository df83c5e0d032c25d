"""Patterns of `.dockerignore` and `.containerignore`: files of the context that a build does not see."""

import posixpath
import re
from collections.abc import Iterable

LONGEST = 1 << 20
"""Bytes of such a file."""
MOST = 10_000


class BadPattern(ValueError):
    """A pattern that cannot be read."""


class IgnorePatterns:
    """The last pattern that matches a path, or a directory above it, decides; `!` takes a path back in."""

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self._rules: list[tuple[bool, re.Pattern[str]]] = []
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            keeps = text.startswith("!")
            pattern = posixpath.normpath(text.removeprefix("!").strip()).lstrip("/")
            if pattern in ("", "."):
                continue
            if len(self._rules) >= MOST:
                raise BadPattern(f"line {number}: more than {MOST} patterns")
            try:
                self._rules.append((keeps, re.compile(translate(pattern))))
            except re.error as error:
                raise BadPattern(f"line {number}: {text[:80]!r} is not a pattern") from error
        self.takes_back = any(keeps for keeps, _ in self._rules)
        """Whether something below an ignored directory may be in the context all the same."""

    def __bool__(self) -> bool:
        return bool(self._rules)

    def ignores(self, path: str) -> bool:
        """Whether a path of the context, relative to it, is left out."""
        parts = path.split("/")
        above = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        ignored = False
        for keeps, pattern in self._rules:
            if keeps is ignored and any(pattern.fullmatch(prefix) for prefix in above):
                ignored = not keeps
        return ignored


def translate(pattern: str, *, across: bool = True) -> str:
    """Returns a glob as a regular expression; `**` crosses directories, unless it may not (`across`)."""
    result, at = "", 0
    while at < len(pattern):
        letter = pattern[at]
        if across and pattern.startswith("**", at):
            at += 2
            if pattern.startswith("/", at):
                at += 1
                result += "(?:.*/)?"
            else:
                result += ".*"
            continue
        at += 1
        if letter == "*":
            result += "[^/]*"
        elif letter == "?":
            result += "[^/]"
        elif letter == "[":
            end = pattern.find("]", at + 1)
            if end < 0:
                raise BadPattern(f"{pattern[:80]!r}: a bracket [ is not closed")
            inside = pattern[at:end].replace("[", "\\[")
            result += f"(?!/)[{'^' + inside[1:] if inside[:1] in ('^', '!') else inside}]"
            at = end + 1
        elif letter == "\\" and at < len(pattern):
            result += re.escape(pattern[at])
            at += 1
        else:
            result += re.escape(letter)
    return result
