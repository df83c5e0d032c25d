"""Values as JSON and back, by their own types: dataclasses, named tuples, tuples, mappings, addresses. Pure."""

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Decoder = Callable[[Any], Any]

_PLAIN = (str, int, bool)
_ADDRESSES: Mapping[str, Decoder] = {"Address": ip_address, "Interface": ip_interface, "Network": ip_network}
"""By how the names of their types end."""


def encoded(value: object) -> Any:
    if value is None or isinstance(value, _PLAIN):
        return value
    if is_dataclass(value):
        return {each.name: encoded(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return (
            [encoded(each) for each in value] if names is None else dict(zip(names, map(encoded, value), strict=True))
        )
    if isinstance(value, Mapping):
        return {key: encoded(each) for key, each in value.items()}
    return str(value)


def decoded(kind: type[T], raw: object) -> T:
    """Raises TypeError, KeyError, ValueError, AttributeError for what `encoded` did not make."""
    value: T = _decoder(cast("Any", kind))(raw)
    return value


@cache
def _decoder(kind: Any) -> Decoder:
    if kind in _PLAIN:
        return lambda raw: _plain(kind, raw)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union(inner)
    if origin is tuple:
        return _tuple(inner)
    if origin is not None and issubclass(origin, Mapping):
        each = _decoder(inner[1])
        return lambda raw: {key: each(value) for key, value in raw.items()}
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return _record(kind)
    return _address(kind)


def _plain(kind: type, raw: object) -> object:
    if type(raw) is not kind:
        raise TypeError(f"{raw!r} is no {kind.__name__}")
    return raw


def _union(kinds: tuple[Any, ...]) -> Decoder:
    """Of something and nothing, or of both families of an address."""
    some = [each for each in kinds if each is not type(None)]
    each = _decoder(some[0])
    return (lambda raw: None if raw is None else each(raw)) if len(some) < len(kinds) else each


def _tuple(kinds: tuple[Any, ...]) -> Decoder:
    if kinds[-1] is Ellipsis:
        each = _decoder(kinds[0])
        return lambda raw: tuple(each(value) for value in raw)
    members = tuple(_decoder(each) for each in kinds)
    return lambda raw: tuple(member(value) for member, value in zip(members, raw, strict=True))


def _record(kind: Any) -> Decoder:
    hints = get_type_hints(kind if is_dataclass(kind) else _with_fields(kind))
    members = {name: _decoder(hint) for name, hint in hints.items()}
    return lambda raw: kind(**{name: members[name](value) for name, value in raw.items()})


def _with_fields(kind: type) -> type:
    """The class of a named tuple that says of which types its fields are; it may have heirs."""
    return next(each for each in kind.__mro__ if "_fields" in vars(each))


def _address(kind: type) -> Decoder:
    for ending, parse in _ADDRESSES.items():
        if kind.__name__.endswith(ending):
            return parse
    raise TypeError(f"{kind} is not kept")
