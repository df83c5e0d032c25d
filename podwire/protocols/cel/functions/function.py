"""A function: its types for the checker, and the Python that computes it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from podwire.protocols.cel.types import Type


@dataclass(frozen=True, slots=True)
class Function:
    """One overload. `compute` is given and gives Python values, opaque ones included; ValueError is an evaluation
    error. Overloads whose parameters differ only within lists or maps are one at run time: they share `compute`."""

    name: str
    parameters: tuple[Type, ...]
    returns: Type
    compute: Callable[..., Any]
    member: bool = True
    optional: bool = False
    """Gives an optional: none for what is empty, such as an empty list."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """How values of an opaque type are kept: as texts that are equal when the values are."""

    type: Type
    python: tuple[Any, ...]
    text: Callable[[Any], str]
    value: Callable[[str], Any]
