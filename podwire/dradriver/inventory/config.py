"""What a node offers, out of the driver's YAML file, read strictly: a key that nobody knows is no small thing."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from podwire.objects.quantity import parse

EFFECTS = ("None", "NoSchedule", "NoExecute")
MOST_SLOTS = 4096
MOST_PARENTS = 64
LEAST_BANDWIDTH = 1_000_000
"""Bits per second: what a share of a device is counted in."""
LONGEST_FILTER = 10 * 1024


class BadConfig(ValueError):
    """The key, and what is wrong with it."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}" if key else reason)
        self.key, self.reason = key, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A link that interfaces are made on, for several claims at once."""

    interface: str
    slots: int = 16
    bandwidth: int | None = None
    """Bits per second that all of them share; None is the link's speed, if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    filter: str = ""
    """CEL over `attributes`: what is offered. Empty offers everything that can be."""
    shared: tuple[Shared, ...] = ()
    bridges: bool = True
    """Whether bridges that are not podwire's own are shared, also those that are not named."""
    slots: int = 16
    """Of those bridges."""
    taint: str = "NoSchedule"
    """The effect of having no carrier, or of being gone."""
    patience: float = 3.0
    """Seconds that a link may be without carrier, or out of sight, before it counts: one that was just set up has to
    find its other end first."""

    def parent(self, link: str) -> Shared | None:
        """What is said of a link that is named."""
        return next((each for each in self.shared if each.interface == link), None)


def parsed(path: str | Path) -> object:
    """What a YAML file says, strictly: for whoever has more than this in one file. Raises BadConfig, OSError."""
    try:
        return yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a safe loader, made stricter
    except (yaml.YAMLError, UnicodeError, RecursionError) as error:
        raise BadConfig("", f"{path} is no YAML: {' '.join(str(error).split())}") from error


class _Loader(yaml.SafeLoader):
    """One that does not let the second of two equal keys win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for each in keys:
            if isinstance(each, str) and keys.count(each) > 1:
                raise yaml.YAMLError(f"line {node.start_mark.line + 1}: {each} is there twice")
        return super().construct_mapping(node, deep)


def config(found: object, key: str = "") -> Config:
    """Of a value that stands at a key of some file. Raises BadConfig."""
    read = Config(**_mapped(key, found, _KEYS))
    for at, each in enumerate(read.shared):
        if each.interface in [other.interface for other in read.shared[:at]]:
            raise BadConfig(_at(_at(key, f"shared[{at}]"), "interface"), f"{each.interface} is there twice")
    return read


Read = Callable[[str, Any], Any]
"""Makes a value of what stands at a key. Raises BadConfig."""


def _at(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def _mapped(key: str, found: object, keys: Mapping[str, tuple[str, Read]]) -> dict[str, Any]:
    """What was given, by the names that fields have here."""
    if not isinstance(found, dict):
        raise BadConfig(key, f"is no mapping with {', '.join(keys)}")
    for each in found:
        if each not in keys:
            raise BadConfig(_at(key, each), f"is no setting; there are {', '.join(keys)}")
    return {keys[name][0]: keys[name][1](_at(key, name), value) for name, value in found.items()}


def _parents(key: str, value: object) -> tuple[Shared, ...]:
    if not isinstance(value, list) or len(value) > MOST_PARENTS:
        raise BadConfig(key, f"is no list of up to {MOST_PARENTS}")
    return tuple(_parent(f"{key}[{at}]", each) for at, each in enumerate(value))


def _parent(key: str, found: object) -> Shared:
    read = _mapped(key, found, _PARENT_KEYS)
    if "interface" not in read:
        raise BadConfig(f"{key}.interface", "is needed")
    return Shared(**read)


def _link(key: str, value: object) -> str:
    good = isinstance(value, str) and value.isprintable() and value not in ("", ".", "..")
    if not good or len(str(value).encode()) > 15 or any(each in "/:% " for each in str(value)):
        raise BadConfig(key, f"{value!r} is no name of a link")
    return str(value)


def _bandwidth(key: str, value: object) -> int:
    """Of a quantity, bits per second: 10G."""
    good = (
        isinstance(value, str | int) and not isinstance(value, bool) and re.fullmatch(r"[0-9.]+[kMGTPE]?", str(value))
    )
    try:
        amount = parse(str(value)).value() if good else 0
    except ValueError:
        amount = 0
    if not LEAST_BANDWIDTH <= amount < 2**63:
        raise BadConfig(key, f"{value!r} is no bandwidth in bits per second such as 10G, 1M at least")
    return amount


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadConfig(key, "is neither true nor false")
    return value


def _expression(key: str, value: object) -> str:
    if not isinstance(value, str) or len(value.encode()) > LONGEST_FILTER:
        raise BadConfig(key, f"is no expression of up to {LONGEST_FILTER} bytes")
    return value


def _effect(key: str, value: object) -> str:
    if value not in EFFECTS:
        raise BadConfig(key, f"{value!r} is none of {', '.join(EFFECTS)}")
    return str(value)


def _slots(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_SLOTS:
        raise BadConfig(key, f"{value!r} is no number from 1 to {MOST_SLOTS}")
    return value


def _seconds(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 3600:
        raise BadConfig(key, f"{value!r} is no number of seconds from 0 to 3600")
    return float(value)


_PARENT_KEYS: dict[str, tuple[str, Read]] = {
    "interface": ("interface", _link),
    "slots": ("slots", _slots),
    "bandwidth": ("bandwidth", _bandwidth),
}
_KEYS: dict[str, tuple[str, Read]] = {
    "filter": ("filter", _expression),
    "shared": ("shared", _parents),
    "shareBridges": ("bridges", _flag),
    "bridgeSlots": ("slots", _slots),
    "taintEffect": ("taint", _effect),
    "patienceSeconds": ("patience", _seconds),
}
KEYS = tuple(_KEYS)
"""For whoever has more than this in one file."""
