"""Quantities: exact numbers with a suffix, as `resources.requests` and ResourceSlices write them.

A quantity is a whole number of nanos and the suffix family it was written in; the family decides how it is shown:
decimal suffixes (500m, 2k), binary ones (1536Mi) or an exponent (1e3). What is smaller than a nano rounds away from
zero, so that a request is never rounded to nothing.
"""

import enum
import re
from functools import lru_cache, total_ordering


class Format(enum.Enum):
    """The suffix family."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


NANO = 10**9
LARGEST_BINARY = (2**63 - 1) * NANO
LONGEST_TEXT = 256
"""More characters than any amount needs; thousands of texts are remembered, so each is small."""
LONGEST_EXPONENT = 1000
"""A power of ten above this is refused: such a number has no use but to keep the server busy."""

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIXES = ("", *_BINARY)

_FORM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_NUMBER = "unable to parse numeric part of quantity"
_SUFFIX = "unable to parse quantity's suffix"

_SPLIT = re.compile(r"([+-]?)([0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)")
_DIGITS = re.compile(r"(?=.*[0-9])([0-9]*)\.?([0-9]*)")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]{1,9})")


@total_ordering
class Quantity:
    """An amount in nanos; equal when the amounts are, however they are written."""

    __slots__ = ("_text", "format", "nano")

    def __init__(self, nano: int, format: Format = Format.DECIMAL_SI) -> None:  # noqa: A002 - the spec's own word
        self.nano = nano
        self.format = format
        self._text = ""

    @staticmethod
    def parse(text: str) -> "Quantity":
        return parse(text)

    def canonical(self) -> str:
        """Without a fraction and with the largest suffix that loses nothing: 1.5 is 1500m, 1.5Gi is 1536Mi."""
        if not self._text:
            self._text = _canonical(self.nano, self.format)
        return self._text

    def value(self) -> int:
        """As a whole number, rounded away from zero."""
        return _divided(self.nano, NANO)

    def milli(self) -> int:
        """In thousandths, rounded away from zero."""
        return _divided(self.nano, 10**6)

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano + other.nano, self.format if self.nano else other.format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano - other.nano, self.format if self.nano else other.format)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nano, self.format)

    def __bool__(self) -> bool:
        return self.nano != 0

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: "Quantity") -> bool:
        return self.nano < other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __str__(self) -> str:
        return self.canonical()

    def __repr__(self) -> str:
        return f"Quantity({self.canonical()!r})"


@lru_cache(maxsize=4096)
def parse(text: str) -> Quantity:
    """The quantity that a text writes; raises ValueError. The few that a cluster uses are parsed once."""
    if len(text) > LONGEST_TEXT:
        raise ValueError(_NUMBER)
    split = _SPLIT.fullmatch(text.strip())
    if split is None:
        raise ValueError(_FORM)
    sign, number, suffix = split.groups()
    digits = _DIGITS.fullmatch(number)
    if digits is None:
        raise ValueError(_NUMBER)
    whole, fraction = digits.groups()
    base, exponent, form = _suffix(suffix)
    nano = _nanos(int(whole + fraction), len(fraction), base, exponent)
    if form is Format.BINARY_SI:
        nano = min(nano, LARGEST_BINARY)
        if 0 < nano < NANO:
            form = Format.DECIMAL_SI
    return Quantity(-nano if sign == "-" else nano, form)


def _suffix(text: str) -> tuple[int, int, Format]:
    """Base, exponent and family of a suffix."""
    if text in _DECIMAL:
        return 10, _DECIMAL[text], Format.DECIMAL_SI
    if text in _BINARY:
        return 2, _BINARY[text], Format.BINARY_SI
    found = _EXPONENT.fullmatch(text)
    if found is None or int(found[1]) > LONGEST_EXPONENT:
        raise ValueError(_SUFFIX)
    return 10, max(int(found[1]), -LONGEST_EXPONENT - 1), Format.DECIMAL_EXPONENT


def _nanos(mantissa: int, decimals: int, base: int, exponent: int) -> int:
    if base == 2:
        return _divided((mantissa << exponent) * NANO, 10**decimals)
    power = 9 + exponent - decimals
    return mantissa * 10**power if power >= 0 else _divided(mantissa, 10**-power)


def _divided(amount: int, by: int) -> int:
    """Rounded away from zero."""
    return -(-amount // by) if amount >= 0 else amount // by


def _canonical(nano: int, form: Format) -> str:
    if nano == 0:
        return "0"
    if form is Format.BINARY_SI and abs(nano) >= 1024 * NANO and nano % NANO == 0:
        return _canonical_binary(nano // NANO)
    largest = 18 if form is not Format.DECIMAL_EXPONENT else LONGEST_EXPONENT + 9
    exponent = -9
    while nano % 1000 == 0 and exponent < largest:
        nano //= 1000
        exponent += 3
    if form is Format.DECIMAL_EXPONENT:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL_SUFFIX[exponent]}"


def _canonical_binary(whole: int) -> str:
    power = 0
    while whole % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
        whole //= 1024
        power += 1
    return f"{whole}{_BINARY_SUFFIXES[power]}"
