"""CEL's types and functions, as values. What the library makes of them is `environment`'s business."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Type:
    """A type by its name in CEL; lists, maps and optionals have parameters, structs have fields."""

    name: str
    parameters: tuple["Type", ...] = ()
    fields: tuple[tuple[str, "Type"], ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Compiled expressions are remembered by the types of their variables, which may be whole schemas.
        object.__setattr__(self, "_hash", hash((self.name, self.parameters, self.fields)))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parameters))})" if self.parameters else self.name


BOOL = Type("bool")
BYTES = Type("bytes")
DOUBLE = Type("double")
DURATION = Type("duration")
DYN = Type("dyn")
INT = Type("int")
STRING = Type("string")
TIMESTAMP = Type("timestamp")

AUTHORIZER = Type("kubernetes.authorization.Authorizer")
CIDR = Type("net.CIDR")
DECISION = Type("kubernetes.authorization.Decision")
FORMAT = Type("kubernetes.NamedFormat")
GROUP_CHECK = Type("kubernetes.authorization.GroupCheck")
IP = Type("net.IP")
PATH_CHECK = Type("kubernetes.authorization.PathCheck")
QUANTITY = Type("kubernetes.Quantity")
RESOURCE_CHECK = Type("kubernetes.authorization.ResourceCheck")
SEMVER = Type("kubernetes.Semver")
URL = Type("kubernetes.URL")
_AUTHORIZATION = (AUTHORIZER, DECISION, GROUP_CHECK, PATH_CHECK, RESOURCE_CHECK)
OPAQUE = (CIDR, FORMAT, IP, QUANTITY, SEMVER, URL, *_AUTHORIZATION)
"""Types that only functions look into."""


def list_of(element: Type) -> Type:
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def optional(inner: Type) -> Type:
    """A variable that may be absent: expressions see `optional.none()` then."""
    return Type("optional_type", (inner,))


def struct(fields: Iterable[tuple[str, Type]]) -> Type:
    """An object whose fields are known; to select another is an error of compilation."""
    return Type("object", fields=tuple(fields))


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
