"""Which claims have to be given up because of taints of their devices, and when. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from podwire.objects import times
from podwire.objects.claims import AllocatedDevice, ResourceClaim
from podwire.objects.device_taints import NO_EXECUTE, DeviceTaint, DeviceTaintRule, tolerates
from podwire.objects.slices import ResourceSlice

Identity = tuple[str, str, str]
"""Driver, pool, device."""

EVICTION = "EvictionInProgress"
_NOT_AGAIN = "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."


@dataclass(frozen=True, slots=True)
class Offered:
    """What a slice says of taints that end pods."""

    pool: tuple[str, str]
    generation: int
    taints: Mapping[str, tuple[DeviceTaint, ...]]
    """By device; only those that have any."""


def offered(slice_: ResourceSlice) -> Offered:
    taints = {each.name: tuple(taint for taint in each.taints if taint.effect == NO_EXECUTE)
              for each in slice_.spec.devices}  # fmt: skip
    kept = {name: each for name, each in taints.items() if each}
    return Offered(slice_.pool, slice_.spec.pool.generation, kept)


def tainted(slices: Iterable[Offered]) -> dict[Identity, tuple[DeviceTaint, ...]]:
    """The taints of devices, of the newest generation of each pool."""
    known = tuple(slices)
    newest: dict[tuple[str, str], int] = {}
    for each in known:
        newest[each.pool] = max(each.generation, newest.get(each.pool, each.generation))
    return {
        (*each.pool, device): taints
        for each in known
        if each.generation == newest[each.pool]
        for device, taints in each.taints.items()
    }


@dataclass(frozen=True, slots=True)
class Due:
    """When the pods of a claim have to go, and the rules by which they have to, if any."""

    when: float
    rules: frozenset[str] = frozenset()
    """By uid."""


def due(
    claim: ResourceClaim, taints: Mapping[Identity, tuple[DeviceTaint, ...]], rules: Iterable[DeviceTaintRule]
) -> Due | None:
    """The first of all its devices' times; None if it may be kept for ever."""
    known, found = tuple(rules), list[Due]()
    for device in claim.allocated:
        for taint in taints.get(device.identity, ()):
            if (when := _until(device, taint)) is not None:
                found.append(Due(when))
        for rule in known:
            if rule.covers(*device.identity) and (when := _until(device, rule.spec.taint)) is not None:
                found.append(Due(when, frozenset({rule.metadata.uid})))
    return first(found)


def first(dues: Iterable[Due]) -> Due | None:
    """The earliest, with everybody's reasons."""
    known = tuple(dues)
    if not known:
        return None
    return Due(min(each.when for each in known), frozenset().union(*(each.rules for each in known)))


def _until(device: AllocatedDevice, taint: DeviceTaint) -> float | None:
    """When a device with a taint has to be given up; None if never. Of several tolerations the shortest counts."""
    if taint.effect != NO_EXECUTE:
        return None
    since = times.parse(taint.time_added) if taint.time_added else 0.0
    matching = [each for each in device.tolerations if tolerates(each, taint)]
    if any(each.toleration_seconds is None for each in matching):
        return None
    return since + min((max(0, each.toleration_seconds or 0) for each in matching), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a rule does, or would do: numbers for people."""

    pods: int = 0
    namespaces: int = 0
    evicted: int = 0
    published: int = 0
    allocated: int = 0


def condition(rule: DeviceTaintRule, effect: Effect) -> dict[str, str | int]:
    """What is said of a rule in its status."""
    status, reason, message = _told(rule.spec.taint.effect, effect)
    if effect.evicted:
        so_far = f"{_count(effect.evicted, 'pod')} evicted since starting the controller."
        message = f"{message} {so_far}" if message else so_far
    return {
        "type": EVICTION,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": rule.metadata.generation,
    }


def _told(what: str, effect: Effect) -> tuple[str, str, str]:
    where = f"in {'1 namespace' if effect.namespaces == 1 else f'{effect.namespaces} different namespaces'}"
    match what:
        case "NoExecute" if effect.pods:
            need = "needs" if effect.pods == 1 else "need"
            return "True", "PodsPendingEviction", f"{_count(effect.pods, 'pod')} {need} to be evicted {where}."
        case "NoExecute":
            return "False", "Completed" if effect.evicted else "NotStarted", ""
        case "None":
            counted = (
                f"{_count(effect.published, 'published device')} selected. "
                f"{_count(effect.allocated, 'allocated device')} selected. "
                f"{_count(effect.pods, 'pod')} would be evicted {where} if the effect was NoExecute. {_NOT_AGAIN}"
            )
            return "False", "NoEffect", counted
        case _:
            return "False", "OtherEffect", "Eviction only happens for the NoExecute effect."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
