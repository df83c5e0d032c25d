"""JSON from strangers, read strictly: what is there has the type that it must have, or the error names the key."""

import json
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import Any, NamedTuple, NoReturn, TypeVar

from podwire.protocols.cni.errors import CniError, Code

Address = IPv4Address | IPv6Address
Interface = IPv4Interface | IPv6Interface
Network = IPv4Network | IPv6Network
Object = dict[str, Any]
T = TypeVar("T")


def loaded(data: bytes, what: str) -> object:
    """A JSON text; UTF-8 only, and no numbers that JSON does not know."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError as error:
        raise CniError(Code.UNDECODABLE, f"{what}: too deep") from error
    except ValueError as error:
        raise CniError(Code.UNDECODABLE, f"{what}: not valid JSON", str(error)) from error


def loaded_object(data: bytes, what: str) -> Object:
    value = loaded(data, what)
    if not isinstance(value, dict):
        raise CniError(Code.UNDECODABLE, f"{what}: not a JSON object")
    return value


def check_unique(data: bytes, key: str) -> None:
    """Raises CniError if an object of this name has a key twice, of which JSON would silently take the last."""

    def check(pairs: list[tuple[str, Any]]) -> Any:
        for name, inner in pairs:
            names = [own for own, _ in inner.pairs] if name == key and isinstance(inner, _Pairs) else []
            for own in names:
                if names.count(own) > 1:
                    raise CniError(Code.BAD_CONFIG, f"{key}: duplicated key {own}")
        return _Pairs(pairs)

    json.loads(data, object_pairs_hook=check)


class _Pairs(NamedTuple):
    """An object with all its keys, in their order."""

    pairs: list[tuple[str, Any]]


def dumped(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def looked_up(config: Object, key: str) -> Any:
    """A value, also when its key is spelled with other capitals, as the reference plugins read it; None without any."""
    if key in config:
        return config[key]
    small = key.lower()
    return next((value for name, value in config.items() if name.lower() == small), None)


def taken(config: Object, key: str, kind: type[T], default: T, where: str = "") -> T:
    """A value of this type; the default when it is absent or null."""
    value = looked_up(config, key)
    if value is None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise CniError(Code.UNDECODABLE, f"{where}{key}: {_short(value)} is not {_NAMES[kind]}")
    return value


def taken_list(config: Object, key: str, kind: type[T], where: str = "") -> list[T]:
    """A list of values of this type; empty when it is absent or null."""
    values: list[Any] = taken(config, key, list, [], where)
    for at, value in enumerate(values):
        taken({key: value}, key, kind, value, where) if value is not None else _no_null(f"{where}{key}[{at}]")
    return values


def _no_null(where: str) -> NoReturn:
    raise CniError(Code.UNDECODABLE, f"{where}: null")


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 64 else f"{text[:60]} …"


_NAMES: dict[type, str] = {str: "a string", int: "an integer", bool: "a boolean", dict: "an object", list: "a list"}


def address(text: object, where: str) -> Address:
    """An address, without a zone: zones mean nothing in another namespace."""
    try:
        if isinstance(text, str) and "%" not in text:
            return ip_address(text)
    except ValueError:
        pass
    raise _invalid("IP address", text, f"{where}: {_short(text)} is not an IP address")


def interface(text: object, where: str) -> Interface:
    """An address with the length of its network's prefix."""
    try:
        if isinstance(text, str) and "%" not in text and "/" in text:
            return ip_interface(text)
    except ValueError:
        pass
    raise _invalid("CIDR address", text, f"{where}: {_short(text)} is not an IP address with a prefix length")


def network(text: object, where: str, *, strict: bool = False) -> Network:
    """A network; unless strict, bits of a host in it are dropped as everybody does."""
    try:
        if isinstance(text, str) and "%" not in text and "/" in text:
            return ip_network(text, strict=strict)
    except ValueError as error:
        if "host bits" in str(error):
            base = ip_network(str(text), strict=False)
            message = f"For a subnet mask of length {base.prefixlen} the network address is {base.network_address}"
            details = f"{where}: {text} has bits set beyond its prefix"
            raise CniError(Code.BAD_CONFIG, f"Network has host bits set. {message}", details) from error
    raise _invalid("CIDR address", text, f"{where}: {_short(text)} is not a network such as 10.1.0.0/16")


def _invalid(what: str, text: object, details: str) -> CniError:
    """The words of the reference plugins, and which key it is."""
    if not isinstance(text, str):
        return CniError(Code.BAD_CONFIG, details)
    return CniError(Code.BAD_CONFIG, f"invalid {what}: {text[:64]}", details)
