"""Computes which claims must be released because of device taints, and when. Pure."""

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
class SliceTaints:
    """The NoExecute taints of a slice."""

    pool: tuple[str, str]
    generation: int
    taints: Mapping[str, tuple[DeviceTaint, ...]]
    """By device; only those that have any."""


def noexecute_taints(slice_: ResourceSlice) -> SliceTaints:
    taints = {device.name: tuple(taint for taint in device.taints if taint.effect == NO_EXECUTE)
              for device in slice_.spec.devices}  # fmt: skip
    kept = {name: device_taints for name, device_taints in taints.items() if device_taints}
    return SliceTaints(slice_.pool, slice_.spec.pool.generation, kept)


def tainted(slices: Iterable[SliceTaints]) -> dict[Identity, tuple[DeviceTaint, ...]]:
    """Returns the taints of devices, of the newest generation of each pool."""
    known = tuple(slices)
    newest: dict[tuple[str, str], int] = {}
    for eviction in known:
        newest[eviction.pool] = max(eviction.generation, newest.get(eviction.pool, eviction.generation))
    return {
        (*eviction.pool, device): taints
        for eviction in known
        if eviction.generation == newest[eviction.pool]
        for device, taints in eviction.taints.items()
    }


@dataclass(frozen=True, slots=True)
class Eviction:
    """When the pods of a claim must be evicted, and the rules that cause it, if any."""

    when: float
    rules: frozenset[str] = frozenset()
    """By uid."""


def eviction_of(
    claim: ResourceClaim, taints: Mapping[Identity, tuple[DeviceTaint, ...]], rules: Iterable[DeviceTaintRule]
) -> Eviction | None:
    """Returns the earliest eviction of a claim's devices; None if there is none."""
    known, found = tuple(rules), list[Eviction]()
    for device in claim.allocated:
        for taint in taints.get(device.identity, ()):
            if (when := _until(device, taint)) is not None:
                found.append(Eviction(when))
        for rule in known:
            if rule.covers(*device.identity) and (when := _until(device, rule.spec.taint)) is not None:
                found.append(Eviction(when, frozenset({rule.metadata.uid})))
    return earliest(found)


def earliest(dues: Iterable[Eviction]) -> Eviction | None:
    """Returns the earliest eviction, with the rules of all."""
    known = tuple(dues)
    if not known:
        return None
    return Eviction(
        min(eviction.when for eviction in known), frozenset().union(*(eviction.rules for eviction in known))
    )


def _until(device: AllocatedDevice, taint: DeviceTaint) -> float | None:
    """Returns when a tainted device must be released; None if never. The shortest of several tolerations counts."""
    if taint.effect != NO_EXECUTE:
        return None
    since = times.parse(taint.time_added) if taint.time_added else 0.0
    matching = [toleration for toleration in device.tolerations if tolerates(toleration, taint)]
    if any(toleration.toleration_seconds is None for toleration in matching):
        return None
    return since + min((max(0, toleration.toleration_seconds or 0) for toleration in matching), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of a rule, as numbers for its status."""

    pods: int = 0
    namespaces: int = 0
    evicted: int = 0
    published: int = 0
    allocated: int = 0


def condition(rule: DeviceTaintRule, effect: Effect) -> dict[str, str | int]:
    """Returns the condition of a rule's status."""
    status, reason, message = _reported(rule.spec.taint.effect, effect)
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


def _reported(what: str, effect: Effect) -> tuple[str, str, str]:
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
