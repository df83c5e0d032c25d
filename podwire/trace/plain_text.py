"""Makes untrusted text safe to show: one line, no control characters, nothing lost. Pure.

Names, User-Agents and messages come from clients. Characters that would move a cursor or change the writing direction
are shown as escapes, such as `\\x1b` and `\\u202e`.
"""

import unicodedata


def plain(text: str) -> str:
    """Escapes everything but printable characters and spaces."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _numbered(character) for character in text)


def _numbered(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character, f"\\x{number:02x}")
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def columns(character: str) -> int:
    """Returns the terminal columns of a character: 0 for combining, 2 for wide characters."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def width(text: str) -> int:
    """Returns the terminal columns of plain text."""
    return len(text) if text.isascii() else sum(map(columns, text))


def cut(text: str, most: int) -> str:
    """Returns as much of plain text as fits into so many columns, with an ellipsis if it was cut."""
    if width(text) <= most:
        return text
    return f"{text[: _fitting(text, max(0, most - 1))]}…" if most > 0 else ""


def folded(text: str, most: int) -> list[str]:
    """Wraps plain text at spaces where possible. A line holds at least one character."""
    lines, rest = [], text
    while width(rest) > most:
        fitting = max(1, _fitting(rest, most))
        space = rest.rfind(" ", 1, fitting + 1)
        end = space if space > 0 else fitting
        lines.append(rest[:end].rstrip(" "))
        rest = rest[end:].lstrip(" ")
    return [*lines, rest] if rest else lines


def _fitting(text: str, most: int) -> int:
    """Returns how many characters fit into so many columns."""
    for number, character in enumerate(text):
        most -= columns(character)
        if most < 0:
            return number
    return len(text)
