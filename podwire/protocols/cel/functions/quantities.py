"""The quantity library."""

from podwire.objects.quantity import NANO, Quantity
from podwire.protocols.cel.types import BOOL, DOUBLE, INT, QUANTITY, STRING, Function, Opaque

OPAQUE = Opaque(QUANTITY, (Quantity,), lambda quantity: str(quantity.nano), lambda text: Quantity(int(text)))


def is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except ValueError:
        return False
    return True


def is_integer(quantity: Quantity) -> bool:
    return quantity.nano % NANO == 0 and -(2**63) <= quantity.nano // NANO < 2**63


def as_integer(quantity: Quantity) -> int:
    if not is_integer(quantity):
        raise ValueError("cannot convert value to integer")
    return quantity.nano // NANO


def sign(quantity: Quantity) -> int:
    return (quantity.nano > 0) - (quantity.nano < 0)


def compare(one: Quantity, other: Quantity) -> int:
    return (one.nano > other.nano) - (one.nano < other.nano)


def _whole(number: int) -> Quantity:
    return Quantity(number * NANO)


FUNCTIONS = (
    Function("quantity", (STRING,), QUANTITY, Quantity.parse, member=False),
    Function("isQuantity", (STRING,), BOOL, is_quantity, member=False),
    Function("sign", (QUANTITY,), INT, sign),
    Function("isInteger", (QUANTITY,), BOOL, is_integer),
    Function("asInteger", (QUANTITY,), INT, as_integer),
    Function("asApproximateFloat", (QUANTITY,), DOUBLE, lambda quantity: quantity.nano / NANO),
    Function("add", (QUANTITY, QUANTITY), QUANTITY, lambda one, other: one + other),
    Function("add", (QUANTITY, INT), QUANTITY, lambda one, other: one + _whole(other)),
    Function("sub", (QUANTITY, QUANTITY), QUANTITY, lambda one, other: one - other),
    Function("sub", (QUANTITY, INT), QUANTITY, lambda one, other: one - _whole(other)),
    Function("isLessThan", (QUANTITY, QUANTITY), BOOL, lambda one, other: one < other),
    Function("isGreaterThan", (QUANTITY, QUANTITY), BOOL, lambda one, other: other < one),
    Function("compareTo", (QUANTITY, QUANTITY), INT, compare),
)
