"""Text of strangers as one line that does nothing: no cursor moves, no direction turns, and nothing is lost. Pure.

Names, User-Agents and messages come from whoever wrote them. What no terminal and no page should be told is shown by
its number instead, as programmers write it: `\\x1b`, `\\u202e`.
"""

import unicodedata


def plain(text: str) -> str:
    """Only characters that can be seen, and spaces."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _numbered(character) for character in text)


def _numbered(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character, f"\\x{number:02x}")
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def columns(character: str) -> int:
    """Of a terminal: none for what stands on the character before it, two for wide ones."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def width(text: str) -> int:
    """Columns of plain text on a terminal."""
    return len(text) if text.isascii() else sum(map(columns, text))


def cut(text: str, most: int) -> str:
    """As much of plain text as fits into so many columns; an ellipsis where it ends early."""
    if width(text) <= most:
        return text
    return f"{text[: _fitting(text, max(0, most - 1))]}…" if most > 0 else ""


def folded(text: str, most: int) -> list[str]:
    """Plain text in as many lines as it needs, each of so many columns at most, and broken at spaces where there are
    some. A line has room for one character at least."""
    lines, rest = [], text
    while width(rest) > most:
        fitting = max(1, _fitting(rest, most))
        space = rest.rfind(" ", 1, fitting + 1)
        end = space if space > 0 else fitting
        lines.append(rest[:end].rstrip(" "))
        rest = rest[end:].lstrip(" ")
    return [*lines, rest] if rest else lines


def _fitting(text: str, most: int) -> int:
    """How many characters fit into so many columns."""
    for number, character in enumerate(text):
        most -= columns(character)
        if most < 0:
            return number
    return len(text)
