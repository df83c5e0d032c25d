"""Reads JSON strictly: each problem becomes an error with its field, and reading goes on."""

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Any, TypeVar

from podwire.linux.values import IP, Network
from podwire.objects import selectors
from podwire.protocols.k8sapi.status import FieldError, invalid, not_supported, required, too_many

T = TypeVar("T")
COMMON = ("podSelector", "failurePolicy")
"""Fields that every resource has."""


class Reader:
    """Reads one object and collects its errors."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def wrong(self, path: str, value: Any, detail: str) -> None:
        self.errors.append(invalid(path, value, detail))

    def fields(self, value: Any, path: str, known: tuple[str, ...]) -> Mapping[str, Any]:
        """An object with no fields but these."""
        if not isinstance(value, Mapping):
            self.errors.append(required(path) if value is None else invalid(path, value, "must be an object"))
            return {}
        for key in value:
            if key not in known:
                self.wrong(f"{path}.{key}", value[key], "unknown field")
        return value

    def common(self, spec: Mapping[str, Any], path: str) -> None:
        """The fields that all resources share."""
        policy, selector = spec.get("failurePolicy", "Fail"), spec.get("podSelector")
        if policy not in ("Fail", "Ignore"):
            self.errors.append(not_supported(f"{path}.failurePolicy", policy, ("Fail", "Ignore")))
        try:
            selectors.from_object(selector)
        except (ValueError, AttributeError, TypeError) as error:
            self.wrong(f"{path}.podSelector", selector, str(error))

    def each(self, value: Any, path: str, most: int) -> Iterator[tuple[str, Any]]:
        """The items of a list, with their paths; none when it is not there."""
        if value is None:
            return
        if not isinstance(value, list):
            self.wrong(path, value, "must be a list")
            return
        if len(value) > most:
            self.errors.append(too_many(path, len(value), most))
            return
        for index, item in enumerate(value):
            yield f"{path}[{index}]", item

    def listed(self, value: Any, path: str, most: int, read: Callable[[Any, str], T | None]) -> tuple[T, ...]:
        """All items that can be read."""
        items = (read(item, where) for where, item in self.each(value, path, most))
        return tuple(item for item in items if item is not None)

    def integer(self, value: Any, path: str, least: int, most: int) -> int | None:
        if value is None:
            self.errors.append(required(path))
        elif isinstance(value, bool) or not isinstance(value, int):
            self.wrong(path, value, "must be an integer")
        elif not least <= value <= most:
            self.wrong(path, value, f"must be between {least} and {most}, inclusive")
        else:
            return value
        return None

    def optional(self, spec: Mapping[str, Any], name: str, path: str, least: int, most: int) -> int | None:
        """An integer that need not be there."""
        return None if spec.get(name) is None else self.integer(spec[name], f"{path}.{name}", least, most)

    def network(self, value: Any, path: str) -> Network | None:
        try:
            if not isinstance(value, str) or "/" not in value or "%" in value:
                raise ValueError("no prefix length")
            wide = ip_network(value, strict=False)
        except ValueError:
            self.wrong(path, value, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")
            return None
        if ip_address(value.partition("/")[0]) != wide.network_address:
            self.wrong(path, value, f"must not have bits set beyond its prefix length; the network is {wide}")
            return None
        return wide

    def address(self, value: Any, path: str) -> IP | None:
        try:
            address = ip_address(value) if isinstance(value, str) and "%" not in value else None
        except ValueError:
            address = None
        if address is None:
            self.wrong(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
        elif address.is_multicast or address.is_unspecified or address.is_loopback:
            self.wrong(path, value, "must be the address of another host")
        else:
            return address
        return None
