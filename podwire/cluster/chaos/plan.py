"""The steps of a run: a list that follows from a seed. Pure.

The same seed gives the same steps at the same times, whatever the cluster does meanwhile. Components and records are
chosen by a number between 0 and 1 among those that exist at that moment, so a step is repeatable as far as the cluster
is.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """Faults, by their names on the command line."""

    KILL = "kill"
    """SIGKILL for a component."""
    STOP = "stop"
    """SIGSTOP for a component, and SIGCONT a while later."""
    KILL_ALL = "kill-all"
    """SIGKILL for the supervisor and all components at once; then `podwire up` again."""
    DAMAGE = "damage"
    """The middle of a record is overwritten, and the component that wrote it is killed."""
    REMOVE = "remove"
    """A record is removed, and the component that wrote it is killed."""
    DISK = "disk"
    """The file system of the state is full for a while; only if it is one of its own."""
    PARTITION = "partition"
    """No packet passes between a node and the control plane for a while."""
    PLUGIN = "plugin"
    """A CNI plugin or an NRI plugin fails for a while."""
    REBOOT = "reboot"
    """A node loses all its processes, mounts, links and its /run, and is started again."""


SUMMARIES = {
    Fault.KILL: "kill a component (SIGKILL)",
    Fault.STOP: "stop a component for up to 3 s (SIGSTOP, SIGCONT)",
    Fault.KILL_ALL: "kill all components and the supervisor at once, and start them again",
    Fault.DAMAGE: "overwrite a part of a record, and kill the component that wrote it",
    Fault.REMOVE: "remove a record, and kill the component that wrote it",
    Fault.DISK: "fill the file system of the state for up to 3 s, if it is small and the cluster's own",
    Fault.PARTITION: "drop all packets between a node and the control plane for up to 9 s",
    Fault.PLUGIN: "let a CNI plugin or an NRI plugin fail for up to 3 s",
    Fault.REBOOT: "reboot a node: its processes, mounts, links and /run are gone",
}

DEFAULT = (
    Fault.KILL,
    Fault.STOP,
    Fault.KILL_ALL,
    Fault.DISK,
    Fault.PARTITION,
    Fault.PLUGIN,
    Fault.REBOOT,
)
"""Faults that happen to real clusters. Records are damaged only on request."""

WEIGHTS = {
    Fault.KILL: 6,
    Fault.STOP: 4,
    Fault.KILL_ALL: 1,
    Fault.DAMAGE: 2,
    Fault.REMOVE: 2,
    Fault.DISK: 1,
    Fault.PARTITION: 2,
    Fault.PLUGIN: 3,
    Fault.REBOOT: 1,
}

LONGEST_DELAY = 0.3
"""Seconds between two requests of the workload, at most."""
LONGEST_FAULT = 3.0
FAULT_EVERY = (0.2, 2.0)
"""Seconds between two faults."""
SERVICE_EVERY = (0.1, 1.0)
"""Seconds between two requests for Services or the counter."""
MOST_PODS = 12
"""At a time."""
MOST_SERVICES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`pick` chooses among what exists; `seconds` is how long a fault lasts."""

    at: float
    """Seconds since the begin of the round."""
    action: str
    """`create` or `delete` for a pod, `create-service`, `delete-service`, `write`, or a fault."""
    pick: float = 0.0
    seconds: float = 0.0
    with_claim: bool = False
    grace: int = 0


def planned(seed: int, round_: int, seconds: float, faults: Collection[Fault]) -> list[Step]:
    """Returns the steps of one round, in order."""
    steps = [*_workload(random.Random(f"{seed} {round_} pods"), seconds)]
    steps += _services(random.Random(f"{seed} {round_} services"), seconds)
    if faults:
        steps += _faults(random.Random(f"{seed} {round_} faults"), seconds, sorted(faults))
    return sorted(steps, key=lambda step: step.at)


def _workload(chance: random.Random, seconds: float) -> list[Step]:
    steps, now, count = [], 0.0, 0
    while (now := now + chance.uniform(0.0, LONGEST_DELAY)) < seconds:
        pick, with_claim, grace = chance.random(), chance.random() < 0.3, chance.choice((0, 0, 1, 5))
        creates = chance.random() < (0.9 if count < MOST_PODS // 3 else 0.5)
        count = count + 1 if creates else max(0, count - 1)
        action = "create" if creates else "delete"
        steps.append(Step(at=now, action=action, pick=pick, with_claim=with_claim, grace=grace))
    return steps


def _services(chance: random.Random, seconds: float) -> list[Step]:
    steps, now = [], 0.0
    while (now := now + chance.uniform(*SERVICE_EVERY)) < seconds:
        [action] = chance.choices(("write", "create-service", "delete-service"), (4, 3, 2))
        steps.append(Step(at=now, action=action, pick=chance.random()))
    return steps


def _faults(chance: random.Random, seconds: float, faults: list[Fault]) -> list[Step]:
    steps, now = [], 0.0
    weights = [WEIGHTS[fault] for fault in faults]
    while (now := now + chance.uniform(*FAULT_EVERY)) < seconds:
        [fault] = chance.choices(faults, weights)
        pick, lasts = chance.random(), chance.uniform(0.1, LONGEST_FAULT)
        steps.append(Step(at=now, action=fault, pick=pick, seconds=lasts))
    return steps
