"""Matching in time proportional to the text, whatever the pattern: a set of places in the pattern walks along.

Backtracking engines, Python's among them, try one way after the other, and patterns such as `(a+)+$` have more ways
than there is time. RE2, for which schemas are written, has no such patterns, because it goes all ways at once
(Thompson 1968). So does this: a program's nodes are places between characters, and a state is the set of places that
can be reached. States and their transitions are kept as they are met, so that a text costs two look-ups a character;
what is kept is bounded, and so is what a request may spend on states that are met for the first time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

MOST_NODES = 5_000
"""Places that a pattern may have when its counted repetitions are written out."""
MOST_KEPT = 20_000
"""Places in all states that are kept for one pattern; beyond, all are forgotten and met anew."""
MOST_LEADS = 1_000
"""Characters of which a state remembers where they lead."""
ALLOWANCE = 2_000_000
"""Characters read and places looked at, for all patterns of one object: about a second."""

Test = Callable[[str], object]
"""Whether a character is one of those meant."""

EDGE, NEWLINE, WORD, OTHER = range(4)
"""What lies on one side of a place: nothing, or a character of this sort."""
_SIDES = [(before, after) for before in range(4) for after in range(4)]


class TooCostly(Exception):
    """An object has more text, or its schema dearer patterns, than a request may spend; `path` is where it ended."""

    path = ""


class TooLarge(ValueError):
    """A pattern has too many places."""


class Assertion(NamedTuple):
    """Holds between certain sides, and reads nothing."""

    holds: frozenset[tuple[int, int]]


def _between(holds: Callable[[int, int], bool]) -> Assertion:
    return Assertion(frozenset(each for each in _SIDES if holds(*each)))


TEXT_BEGINS = _between(lambda before, _after: before == EDGE)
TEXT_ENDS = _between(lambda _before, after: after == EDGE)
LINE_BEGINS = _between(lambda before, _after: before in (EDGE, NEWLINE))
LINE_ENDS = _between(lambda _before, after: after in (EDGE, NEWLINE))
WORD_BOUNDARY = _between(lambda before, after: (before == WORD) != (after == WORD))
NO_WORD_BOUNDARY = _between(lambda before, after: (before == WORD) == (after == WORD))


@dataclass(slots=True)
class Place:
    """Where one goes from here: past a character that passes `test`, or past nothing if `condition` holds."""

    next: list[int]
    test: Test | None = None
    condition: Assertion | None = None


class Program:
    """A pattern's places; it begins at 0 and matches at `end`."""

    def __init__(self) -> None:
        self.places: list[Place] = [Place([])]
        self.end = 0

    def add(self, place: Place) -> int:
        if len(self.places) >= MOST_NODES:
            raise TooLarge(f"has more than {MOST_NODES} parts when its repetitions are written out")
        self.places.append(place)
        return len(self.places) - 1


class _Reached:
    """The places that are reached between two sides, and where each character leads from them."""

    __slots__ = ("leads", "matches", "readers")

    def __init__(self, readers: list[Place], *, matches: bool) -> None:
        self.readers = readers
        self.matches = matches
        self.leads: dict[str, _State] = {}


class _State:
    """Places, before it is known what lies on their two sides."""

    __slots__ = ("places", "reached")

    def __init__(self, places: frozenset[int]) -> None:
        self.places = places
        self.reached: dict[tuple[int, int], _Reached] = {}


class Automaton:
    """Finds out whether a program matches somewhere in a text."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._states: dict[frozenset[int], _State] = {}
        self._kept = 0

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere; raises TooCostly."""
        meter = _meter.get() or _Meter()
        meter.spend(len(text) + 1)
        state, before = self._state(frozenset({0}), meter), EDGE
        for character in text:
            after = sort_of(character)
            reached = state.reached.get((before, after)) or self._reach(state, (before, after), meter)
            if reached.matches:
                return True
            state = reached.leads.get(character) or self._lead(reached, character, meter)
            before = after
        return (state.reached.get((before, EDGE)) or self._reach(state, (before, EDGE), meter)).matches

    def _state(self, places: frozenset[int], meter: "_Meter") -> _State:
        found = self._states.get(places)
        if found is None:
            meter.spend(len(places))
            self._kept += len(places)
            if self._kept > MOST_KEPT:
                self._states.clear()
                self._kept = len(places)
            found = self._states[places] = _State(places)
        return found

    def _reach(self, state: _State, sides: tuple[int, int], meter: "_Meter") -> _Reached:
        """Go on from the state's places past nothing, wherever that is possible between these sides."""
        places, seen = self._program.places, set(state.places)
        ahead = list(seen)
        readers = []
        while ahead:
            place = places[ahead.pop()]
            if place.test is not None:
                readers.append(place)
            elif place.condition is None or sides in place.condition.holds:
                fresh = [each for each in place.next if each not in seen]
                seen.update(fresh)
                ahead += fresh
        meter.spend(len(seen))
        self._kept += len(readers)
        reached = state.reached[sides] = _Reached(readers, matches=self._program.end in seen)
        return reached

    def _lead(self, reached: _Reached, character: str, meter: "_Meter") -> _State:
        """Read a character; a match may also begin behind it."""
        meter.spend(len(reached.readers))
        places = {each for place in reached.readers if place.test and place.test(character) for each in place.next}
        state = self._state(frozenset(places | {0}), meter)
        if len(reached.leads) < MOST_LEADS:
            reached.leads[character] = state
        return state


def sort_of(character: str) -> int:
    """What a character is to assertions; words are ASCII, as in RE2."""
    if character == "\n":
        return NEWLINE
    return WORD if character == "_" or (character.isascii() and character.isalnum()) else OTHER


class _Meter:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = ALLOWANCE

    def spend(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise TooCostly


_meter: ContextVar[_Meter | None] = ContextVar("podwire_pattern_meter", default=None)


@contextmanager
def metered() -> Iterator[None]:
    """All searches inside share one allowance; outside of this, each has its own."""
    token = _meter.set(_Meter())
    try:
        yield
    finally:
        _meter.reset(token)
