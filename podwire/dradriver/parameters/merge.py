"""Merges all configs for one device. Pure.

The classes' configs come first, then the claim's, each in its order; a later one wins field by field. Lists are
fields: the later list is the list, and an empty one is empty. Switches of ethtool are fields each. Null takes a field
back, or a whole group: the device keeps what it has, whatever earlier configs said. What a class has locked a claim
says nothing of, not even null.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from podwire.dradriver.claims.allocations import Refused
from podwire.dradriver.names import DRIVER
from podwire.dradriver.parameters.forms import TAKEN_BACK
from podwire.dradriver.parameters.reader import SEPARATOR, Read, Source
from podwire.objects.claims import AllocatedConfig, AllocatedDevice, ResourceClaim

FROM_CLASS = "FromClass"


@dataclass(frozen=True, slots=True)
class Said:
    value: Any
    source: Source


Merged = Mapping[str, Said]


def sources(claim: ResourceClaim, result: AllocatedDevice) -> Iterator[Source]:
    """The configs of this driver that are about this result, in the order in which they apply."""
    configs = claim.status.allocation.devices.config if claim.status.allocation else ()
    places = tuple(_places(claim, configs, _class_of(claim, result.request)))
    for from_class in (True, False):
        for config, where, class_name in places:
            ours = config.opaque.driver == DRIVER and _about(config, result.request)
            if ours and bool(class_name) is from_class:
                yield Source(where=where, class_name=class_name, parameters=config.opaque.parameters)


def _about(config: AllocatedConfig, request: str) -> bool:
    """A config that names a request is about each of its alternatives too."""
    return not config.requests or request in config.requests or request.partition("/")[0] in config.requests


def _places(
    claim: ResourceClaim, configs: Iterable[AllocatedConfig], class_name: str
) -> Iterator[tuple[AllocatedConfig, str, str]]:
    """Each config with where people wrote it: the allocation is a copy.

    A class's configs are copied together, with the same requests; so the place of one is how many of these there were.
    """
    written = list(enumerate(claim.spec.devices.config))
    copied: dict[tuple[str, ...], int] = {}
    for i, config in enumerate(configs):
        if config.source == FROM_CLASS:
            place = copied[config.requests] = copied.get(config.requests, -1) + 1
            yield config, f"deviceClass {class_name} spec.config[{place}].opaque.parameters", class_name
            continue
        found = next((entry for entry in written if entry[1].opaque == config.opaque), None)
        if found is None:
            yield config, f"status.allocation.devices.config[{i}].opaque.parameters", ""
        else:
            written.remove(found)
            yield config, f"spec.devices.config[{found[0]}].opaque.parameters", ""


def _class_of(claim: ResourceClaim, request: str) -> str:
    base, _, alternative = request.partition("/")
    for spec in claim.spec.devices.requests:
        if spec.name == base:
            ways = [spec.exactly] if spec.exactly else [one for one in spec.first_available if one.name == alternative]
            return next((way.device_class_name for way in ways), "") or "?"
    return "?"


def merged(configs: Iterable[Read]) -> Merged:
    """In their order. Raises Refused for what is locked."""
    found: dict[str, Said] = {}
    locks: dict[str, str] = {}
    for config in configs:
        if config.source.class_name:
            locks.update(dict.fromkeys(config.locks, config.source.class_name))
        else:
            _unlocked(config, locks)
        _over(found, config)
    return found


def _over(found: dict[str, Said], read: Read) -> None:
    for path, value in read.said.items():
        if value is TAKEN_BACK:
            for gone in [key for key in found if within(key, path)]:
                del found[gone]
        else:
            found[path] = Said(value, read.source)


def _unlocked(read: Read, locks: Mapping[str, str]) -> None:
    for path in read.said:
        for lock, class_name in locks.items():
            if within(path, lock) or within(lock, path):
                field = path.replace(SEPARATOR, ".")
                raise Refused(f"{read.source.where}.{field}", f"DeviceClass {class_name} has locked {lock}")


def within(path: str, group: str) -> bool:
    return path == group or path.startswith((f"{group}.", f"{group}{SEPARATOR}"))
