"""Parameters as somebody wrote them, read into flat paths: `interface.mtu` to 9000. Nothing unknown is let pass."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.parameters.forms import TAKEN_BACK, Group, Switches, known
from podwire.dradriver.parameters.schema import API_VERSION, FIELDS, KIND, LOCKS

_HEAD = {"apiVersion": API_VERSION, "kind": KIND}
_TOP = {**_HEAD, "locks": LOCKS, **FIELDS}
SEPARATOR = "\0"
"""Between a group of switches and the name of one, which may have dots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One config that applies, and where it stands."""

    where: str
    class_name: str
    """Empty for what the claim says itself."""
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    source: Source
    said: Mapping[str, Any]
    """Path to value; null is TAKEN_BACK, also of a group as a whole."""
    locks: tuple[str, ...] = ()


def read(source: Source) -> Read:
    at, parameters = source.where, source.parameters
    for name, wanted in _HEAD.items():
        if parameters.get(name) != wanted:
            seen = parameters.get(name)
            raise Refused(f"{at}.{name}", f"must be {wanted}" + (f', not "{seen}"' if seen is not None else ""))
    fields = [(name, value) for name, value in known(parameters, _TOP, at) if name not in _HEAD]
    locks: tuple[str, ...] = ()
    said: dict[str, Any] = {}
    for name, value in fields:
        if name == "locks":
            if not source.class_name:
                raise Refused(f"{at}.locks", "only a DeviceClass locks fields")
            locks = () if value is None else LOCKS.read(value, f"{at}.locks")
        else:
            said.update(_flat(FIELDS[name], value, name, f"{at}.{name}"))
    return Read(source=source, said=said, locks=locks)


def _flat(form: Any, value: Any, path: str, at: str) -> Iterator[tuple[str, Any]]:
    if value is None:
        yield path, TAKEN_BACK
    elif isinstance(form, Group):
        for name, item in known(value, form.fields, at):
            yield from _flat(form.fields[name], item, f"{path}.{name}", f"{at}.{name}")
    elif isinstance(form, Switches):
        for name, on in form.items(value, at):
            yield f"{path}{SEPARATOR}{name}", on
    else:
        yield path, form.read(value, at)
