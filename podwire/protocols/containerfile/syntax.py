"""The lines of a Containerfile as instructions: comments, directives, continued lines and flags."""

import json
import re
from dataclasses import dataclass

LONGEST = 1 << 20
"""Bytes of a Containerfile."""
MOST_INSTRUCTIONS = 10_000
_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*$")
_NAME = re.compile(r"\s*([A-Za-z]+)(?:\s+|$)")
_FLAG = re.compile(r"--([A-Za-z][A-Za-z0-9-]*)(?:=(\S*))?(?:\s+|$)")


class BadContainerfile(ValueError):
    """A line that cannot be built: its number and the reason."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(line, reason)
        self.line = line
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `line` is where it starts, `text` what follows its name and flags."""

    line: int
    name: str
    text: str
    flags: tuple[tuple[str, str], ...] = ()
    escape: str = "\\"

    def __str__(self) -> str:
        flags = [f"--{name}={value}" if value else f"--{name}" for name, value in self.flags]
        return " ".join([self.name, *flags, self.text])

    def bad(self, reason: str) -> BadContainerfile:
        return BadContainerfile(self.line, f"{self.name}: {reason}")


def parse(text: str) -> list[Instruction]:
    """Returns the instructions of a Containerfile. Raises BadContainerfile."""
    if len(text) > LONGEST:
        raise BadContainerfile(1, f"has more than {LONGEST} characters")
    lines = text.removeprefix("\ufeff").splitlines()
    escape = _escape(lines)
    instructions: list[Instruction] = []
    pending: list[str] = []
    first = 0
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#") or not line.strip():
            continue  # also within a continued instruction
        if not pending:
            first = number
        stripped = line.rstrip()
        if stripped.endswith(escape):
            pending.append(stripped[:-1])
            continue
        pending.append(line)
        instructions.append(_instruction(first, "".join(pending), escape))
        pending = []
        if len(instructions) > MOST_INSTRUCTIONS:
            raise BadContainerfile(number, f"has more than {MOST_INSTRUCTIONS} instructions")
    if pending:
        instructions.append(_instruction(first, "".join(pending), escape))
    return instructions


def exec_form(instruction: Instruction) -> list[str] | None:
    """Returns the words of `["program", "argument"]`; None for the shell form."""
    if not instruction.text.startswith("["):
        return None
    try:
        words = json.loads(instruction.text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return None
    return words


def _escape(lines: list[str]) -> str:
    """Returns the escape character by the directives, which stand at the very top. Others only guide other builders."""
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is None or match[1].lower() not in ("syntax", "escape", "check"):
            break
        name = match[1].lower()
        if name in seen:
            raise BadContainerfile(number, f"the directive {name} is given twice")
        seen.add(name)
        if name == "escape":
            if match[2] not in ("\\", "`"):
                raise BadContainerfile(number, f"escape: {match[2]!r} is neither \\ nor `")
            return match[2]
    return "\\"


def _instruction(line: int, text: str, escape: str) -> Instruction:
    match = _NAME.match(text)
    if match is None:
        raise BadContainerfile(line, f"{text.strip()[:80]!r} is not an instruction")
    name, rest = match[1].upper(), text[match.end() :].strip()
    flags: list[tuple[str, str]] = []
    while name not in ("CMD", "ENTRYPOINT", "ENV", "LABEL", "ARG") and (flag := _FLAG.match(rest)):
        flags.append((flag[1], flag[2] or ""))
        rest = rest[flag.end() :]
    return Instruction(line, name, rest, tuple(flags), escape)
