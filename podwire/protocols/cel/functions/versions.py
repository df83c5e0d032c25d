"""The semver library."""

import re
from functools import total_ordering
from typing import NamedTuple

from podwire.protocols.cel.types import BOOL, INT, SEMVER, STRING, Function, Opaque

_NUMBER = r"(0|[1-9][0-9]*)"
_FORM = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*))?"
    r"(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_LOOSE = re.compile(r"v?0*([0-9]+)(?:\.0*([0-9]+))?(?:\.0*([0-9]+))?([-+].*)?", re.DOTALL)
LONGEST = 256
"""More characters than any version needs."""


class _Parts(NamedTuple):
    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()
    build: str = ""


@total_ordering
class Semver(_Parts):
    """A version in order; what it was built from plays no part in that."""

    __slots__ = ()

    def __lt__(self, other: object) -> bool:
        return isinstance(other, Semver) and _order(self) < _order(other)

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.pre:
            text += f"-{'.'.join(self.pre)}"
        return f"{text}+{self.build}" if self.build else text


def parse(text: str) -> Semver:
    found = _FORM.fullmatch(text) if len(text) <= LONGEST else None
    if found is None:
        raise ValueError(f'Semver parse error during conversion from string: "{text}" is not a semantic version')
    major, minor, patch, pre, build = found.groups()
    return Semver(int(major), int(minor), int(patch), tuple(pre.split(".")) if pre else (), build or "")


def normalized(text: str, loose: bool) -> Semver:
    """With `loose`, a leading v, missing parts and leading zeros are forgiven."""
    found = _LOOSE.fullmatch(text) if loose else None
    if found is None:
        return parse(text)
    major, minor, patch, rest = found.groups()
    return parse(f"{major}.{minor or 0}.{patch or 0}{rest or ''}")


def is_semver(text: str, loose: bool = False) -> bool:
    try:
        normalized(text, loose)
    except ValueError:
        return False
    return True


def compare(one: Semver, other: Semver) -> int:
    return (_order(one) > _order(other)) - (_order(one) < _order(other))


def _order(version: Semver) -> tuple[int, int, int, tuple[tuple[int, int, str], ...]]:
    """A pre-release comes before its release; numbers come before words."""
    pre = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in version.pre)
    return version.major, version.minor, version.patch, pre or ((2, 0, ""),)


OPAQUE = Opaque(SEMVER, (Semver,), lambda version: str(version._replace(build="")), parse)

FUNCTIONS = (
    Function("semver", (STRING,), SEMVER, parse, member=False),
    Function("semver", (STRING, BOOL), SEMVER, normalized, member=False),
    Function("isSemver", (STRING,), BOOL, is_semver, member=False),
    Function("isSemver", (STRING, BOOL), BOOL, is_semver, member=False),
    Function("major", (SEMVER,), INT, lambda version: version.major),
    Function("minor", (SEMVER,), INT, lambda version: version.minor),
    Function("patch", (SEMVER,), INT, lambda version: version.patch),
    Function("isLessThan", (SEMVER, SEMVER), BOOL, lambda one, other: one < other),
    Function("isGreaterThan", (SEMVER, SEMVER), BOOL, lambda one, other: other < one),
    Function("compareTo", (SEMVER, SEMVER), INT, compare),
)
