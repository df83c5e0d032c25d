"""One line of characters, drawn cell by cell, optionally with terminal colours. Pure."""

from itertools import groupby

from podwire.trace.plain_text import columns

NORMAL, FAINT, STRONG = "", "2", "1"
CALL, ANSWER, EVENT, FAILED, NOTE, LOST = "36", "32", "33", "1;31", "1;34", "35"
"""Styles, as SGR parameters of terminals."""


class Canvas:
    """A line with a fixed number of columns. Without colours, styles are ignored."""

    def __init__(self, width: int, *, colours: bool = False) -> None:
        self._cells = [" "] * width
        self._styles = [NORMAL] * width
        self._colours = colours

    def put(self, column: int, text: str, style: str = NORMAL) -> None:
        """Draws plain text over the cells, and cuts what does not fit."""
        for character in text:
            size = columns(character)
            if size == 0 and 0 < column <= len(self._cells):
                self._cells[column - 1] += character
            elif column >= 0 and column + size <= len(self._cells):
                self._cells[column : column + size] = [character, *[""] * (size - 1)]
                self._styles[column : column + size] = [style] * size
            column += size

    def __str__(self) -> str:
        end = len(self._cells)
        while end and self._cells[end - 1] == " ":
            end -= 1
        if not self._colours:
            return "".join(self._cells[:end])
        drawn = ""
        for style, run in groupby(zip(self._styles[:end], self._cells[:end], strict=True), key=lambda cell: cell[0]):
            drawn += coloured("".join(cell for _, cell in run), style)
        return drawn


def coloured(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style else text
