"""Lists in messages whose entries have a name: put one in the place of its namesake, take one out."""

from collections.abc import MutableSequence
from typing import Any


def put(entries: Any, attribute: str, entry: Any) -> None:
    """In the place of the one with the same name; at the end if there is none."""
    name = getattr(entry, attribute)
    for item in entries:
        if getattr(item, attribute) == name:
            item.CopyFrom(entry)
            return
    entries.append(entry)


def drop(entries: Any, attribute: str, name: str) -> None:
    for number in reversed(range(len(entries))):
        if getattr(entries[number], attribute) == name:
            del entries[number]


def discard(entries: Any, key: str) -> None:
    """From a map; its own `pop` says that everything was there."""
    if key in entries:
        del entries[key]


def put_variable(environment: MutableSequence[str], name: str, value: str) -> None:
    """The same for an environment: NAME=value, in the place of the variable of that name."""
    for number, variable in enumerate(environment):
        if variable.partition("=")[0] == name:
            environment[number] = f"{name}={value}"
            return
    environment.append(f"{name}={value}")


def drop_variable(environment: MutableSequence[str], name: str) -> None:
    for number in reversed(range(len(environment))):
        if environment[number].partition("=")[0] == name:
            del environment[number]


def assign(message: Any, field: str, value: Any) -> None:
    """Set a field, be it a message or not."""
    if hasattr(value, "DESCRIPTOR"):
        getattr(message, field).CopyFrom(value)
    else:
        setattr(message, field, value)
