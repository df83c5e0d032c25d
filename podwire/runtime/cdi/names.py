"""Qualified names of CDI devices: `vendor.com/class=device`. Pure."""

import re
from dataclasses import dataclass

_VENDOR = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_CLASS = re.compile(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")


class BadDevice(ValueError):
    """A device or a specification file that cannot be used; says which and why."""


@dataclass(frozen=True, slots=True)
class Name:
    """A device name, qualified by its kind."""

    kind: str
    device: str

    def __str__(self) -> str:
        return f"{self.kind}={self.device}"


def parse_name(text: str) -> Name:
    """Parses a qualified name. Raises BadDevice."""
    kind, equals, device = text.partition("=")
    if not equals:
        raise BadDevice(f"{text!r} is not a CDI device name (vendor/class=device)")
    check_kind(kind)
    check_device(device)
    return Name(kind, device)


def check_kind(kind: str) -> None:
    """Validates `vendor/class`. Raises BadDevice."""
    vendor, slash, class_ = kind.partition("/")
    if not slash or not _VENDOR.fullmatch(vendor) or not _CLASS.fullmatch(class_):
        raise BadDevice(f"kind: {kind!r} is not vendor/class")


def check_device(device: str) -> None:
    """Validates the name within a kind. Raises BadDevice."""
    if not _DEVICE.fullmatch(device):
        raise BadDevice(f"{device!r} is not a valid device name")
