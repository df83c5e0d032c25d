"""`WWW-Authenticate` of a registry that asks for credentials (RFC 9110, section 11.6.1)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

LONGEST = 16 << 10
"""Bytes of all challenges of one answer."""

_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = re.compile(rf'({_WORD})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))')
_SCHEME = re.compile(rf"({_WORD})(?:\s+(?:[A-Za-z0-9._~+/-]+=*(?=\s*(?:,|$)))?|\s*(?=,|$))")
_SEPARATOR = re.compile(r"[\s,]*")
_ESCAPE = re.compile(r"\\(.)")


class BadChallenge(ValueError):
    """The registry's demand for credentials cannot be read."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way to authenticate; the scheme and the names of parameters are in lower case."""

    scheme: str
    parameters: Mapping[str, str]


def parse_challenges(headers: Iterable[str]) -> list[Challenge]:
    """Returns the challenges in the order of the server. Raises BadChallenge."""
    text = ", ".join(headers)
    if len(text) > LONGEST:
        raise BadChallenge(f"WWW-Authenticate has more than {LONGEST} bytes")
    challenges: list[Challenge] = []
    position = _skip(text, 0)
    while position < len(text):
        if challenges and (parameter := _PARAMETER.match(text, position)):
            name, quoted, plain = parameter.groups()
            value = plain if quoted is None else _ESCAPE.sub(r"\1", quoted)
            challenges[-1] = Challenge(challenges[-1].scheme, {**challenges[-1].parameters, name.lower(): value})
            position = parameter.end()
        elif scheme := _SCHEME.match(text, position):
            challenges.append(Challenge(scheme[1].lower(), {}))
            position = scheme.end()
        else:
            raise BadChallenge(f"WWW-Authenticate cannot be read at {text[position : position + 40]!r}")
        position = _skip(text, position)
    return challenges


def _skip(text: str, position: int) -> int:
    separator = _SEPARATOR.match(text, position)
    return separator.end() if separator else position
