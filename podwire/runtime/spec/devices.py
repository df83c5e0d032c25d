"""The devices that a container may use, as rules of the device cgroup. Pure.

Everything is denied but the devices that every container has; a node of another device can be made (with CAP_MKNOD),
and not opened. Devices of the request, of CDI and of NRI plugins are allowed with the access that they ask for.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from podwire.linux.cgroups.devices import ANY, DeviceRule
from podwire.protocols.grpc_status import InvalidArgument

DENY_ALL = {"allow": False, "access": "rwm"}
ALLOW_ALL = {"allow": True, "access": "rwm"}
NULL, ZERO, FULL, RANDOM, URANDOM = ((1, minor) for minor in (3, 5, 7, 8, 9))
TTY, CONSOLE, PTMX = ((5, minor) for minor in (0, 1, 2))
PTS = (136, None)


def default_rules(*, privileged: bool) -> list[dict[str, Any]]:
    """Returns the rules of a container that asks for nothing."""
    if privileged:
        return [dict(ALLOW_ALL)]
    nodes = [{"allow": True, "type": kind, "access": "m"} for kind in ("c", "b")]
    numbers = (NULL, ZERO, FULL, RANDOM, URANDOM, TTY, CONSOLE, PTMX, PTS)
    return [dict(DENY_ALL), *nodes, *(device_rule("c", major, minor) for major, minor in numbers)]


def device_rule(kind: str, major: int, minor: int | None, access: str = "rwm") -> dict[str, Any]:
    rule: dict[str, Any] = {"allow": True, "type": kind, "major": major, "access": access}
    return rule if minor is None else {**rule, "minor": minor}


def parse_rules(spec: Mapping[str, Any]) -> list[DeviceRule]:
    """Returns the rules of a specification, as plugins left them. Raises InvalidArgument."""
    resources = spec.get("linux", {}).get("resources") or {}
    return [_parsed(number, rule) for number, rule in enumerate(resources.get("devices") or ())]


def _parsed(number: int, rule: Mapping[str, Any]) -> DeviceRule:
    kind, access = rule.get("type") or "a", rule.get("access") or "rwm"
    major, minor = (ANY if (value := rule.get(name)) is None else value for name in ("major", "minor"))
    numbers_fit = all(value == ANY or 0 <= value < 2**31 for value in (major, minor))
    if kind not in ("a", "b", "c") or not set(access) <= set("rwm") or not numbers_fit:
        raise InvalidArgument(f"linux.resources.devices[{number}]: {dict(rule)} is not a rule of the device cgroup")
    return DeviceRule(bool(rule.get("allow")), kind, major, minor, access)


def has_more_than_defaults(rules: Iterable[DeviceRule]) -> bool:
    """Whether a device is allowed that not every container has."""
    usual = {_parsed(0, rule) for rule in default_rules(privileged=False)}
    return any(rule.allow and rule not in usual for rule in rules)
