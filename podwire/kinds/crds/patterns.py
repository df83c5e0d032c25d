"""Regular expressions of schemas: Go's syntax, which is RE2's, matched by RE2 itself (package google-re2).

Upstream compiles `pattern` with Go's regexp package. Go and RE2 share their syntax (github.com/google/re2/wiki/Syntax)
and match in time linear in the text, whatever the pattern: neither backtracks. The two differences that an author could
meet are checked here: RE2 has `\\C` (one byte), and reads a repeat count of nine digits as literal text.

Linear can still be long, so an API server's event loop needs limits:

    LONGEST_PATTERN   characters of a pattern
    MEMORY            bytes for a compiled pattern and the states that matching caches; a larger pattern is rejected
    MOST_STEPS        bytes of text times instructions of the pattern, for one search: about 10 ns each at worst
    SECONDS           processor time for all searches of one object

`re2` is imported when the first pattern is compiled: 7 ms and 4 MB, which processes without patterns save.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LONGEST_PATTERN = 2_000
MEMORY = 8 * 1024 * 1024
MOST_STEPS = 100_000_000
SECONDS = 0.5

_ONE_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")
_HUGE_COUNT = re.compile(r"(?<!\\)(?:\\\\)*\{(?:[0-9]{9,},?[0-9]*|[0-9]+,[0-9]{9,})\}")


class BadPattern(ValueError):
    """A pattern that Go's regexp package would not compile, or that exceeds a limit; the message says why."""


class TooCostly(Exception):
    """An object has more text, or its schema costlier patterns, than a request may spend time on."""

    path = ""
    """The field that was being matched."""


class _Budget:
    """The processor time that the searches of one object have left."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds


_budget: ContextVar[_Budget | None] = ContextVar("podwire_pattern_budget", default=None)


@contextmanager
def metered(seconds: float = SECONDS) -> Iterator[None]:
    """Gives all searches inside one budget; outside, every search has its own."""
    token = _budget.set(_Budget(seconds))
    try:
        yield
    finally:
        _budget.reset(token)


def compile_pattern(text: str) -> Callable[[str], bool]:
    """Returns the search for a pattern anywhere in a text, which raises TooCostly. Raises BadPattern."""
    import re2  # noqa: PLC0415 - see the module's docstring

    if len(text) > LONGEST_PATTERN:
        raise BadPattern(f"is longer than {LONGEST_PATTERN} characters")
    if _ONE_BYTE.search(text):
        raise BadPattern("invalid escape sequence: \\C")
    if _HUGE_COUNT.search(text):
        raise BadPattern("invalid repeat count")
    options = re2.Options()
    options.max_mem = MEMORY
    options.log_errors = False
    options.never_capture = True  # only whether there is a match matters: RE2's automata do without groups
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0]
        raise BadPattern(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from error
    except UnicodeEncodeError as error:
        raise BadPattern("invalid UTF-8") from error
    size = pattern.programsize

    def search(value: str) -> bool:
        data = value.encode(errors="surrogatepass")
        budget = _budget.get() or _Budget()
        if len(data) * size > MOST_STEPS:
            raise TooCostly
        begun = time.thread_time()
        matched = pattern.search(data) is not None
        budget.seconds -= time.thread_time() - begun
        if budget.seconds < 0:
            raise TooCostly
        return matched

    return search
