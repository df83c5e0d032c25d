"""Errors: an invalid expression is raised; a failed evaluation is returned as a value."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

COST = "operation cancelled: actual cost limit exceeded"
OVERLOAD = "no such overload"


class Unavailable(Exception):
    """The CEL library is not installed."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong at one place; lines and columns are counted from one."""

    line: int
    column: int
    message: str


class CompileError(Exception):
    """An expression that cannot be compiled; the text is cel-go's, with the positions underlined."""

    def __init__(self, expression: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(_describe(expression, problem) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class CelError:
    """Why an evaluation has no value."""

    message: str

    @property
    def out_of_budget(self) -> bool:
        return self.message == COST

    def __str__(self) -> str:
        return self.message


def _describe(expression: str, problem: Problem) -> str:
    lines = expression.split("\n")
    snippet = lines[problem.line - 1].replace("\t", " ") if 0 < problem.line <= len(lines) else ""
    head = f"ERROR: <input>:{problem.line}:{problem.column}: {problem.message}"
    return f"{head}\n | {snippet}\n | {'.' * (problem.column - 1)}^" if snippet else head


_PROBLEM = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*?)(?=\n \| |\nERROR: |\Z)", re.DOTALL)
_ENDING = re.compile(r" \[[A-Z_]+\]\Z")
_STATUS = re.compile(r"\A[A-Z_]+: ")
_IN_STRUCT = re.compile(r" not found in struct '[^']*'")


def problems_in(text: str) -> list[Problem]:
    """The places that the library's sentence names."""
    text = _ENDING.sub("", text)
    found = [
        Problem(int(line), int(column), _IN_STRUCT.sub("", message)) for line, column, message in _PROBLEM.findall(text)
    ]
    return found or [Problem(1, 1, _STATUS.sub("", text))]


_WORDS = (
    (re.compile(r'Key not found in map : "?(.*?)"?\Z', re.DOTALL), r"no such key: \1"),
    (re.compile(r"Applying SELECT to non-message type.*", re.DOTALL), OVERLOAD),
    (re.compile(r"No matching overloads found.*", re.DOTALL), OVERLOAD),
    (re.compile(r"divide by zero\Z"), "division by zero"),
    (re.compile(r"Index error: index=(-?\d+).*"), r"index out of bounds: \1"),
    (re.compile(r'No value with name "(.*)" found in Activation'), r"no such attribute(s): \1"),
    (re.compile(r"Iteration budget exceeded"), COST),
)
"""The library's sentences, and those of cel-go which users of Kubernetes know."""


def evaluation_error(text: str) -> CelError:
    """The library's sentence in the words that users of Kubernetes know."""
    text = _STATUS.sub("", _ENDING.sub("", text))
    for pattern, words in _WORDS:
        if pattern.match(text):
            return CelError(pattern.sub(words, text))
    return CelError(text)
