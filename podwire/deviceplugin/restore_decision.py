"""Decides what to do with a device of the host, by its location and its holder. Pure."""

from enum import Enum, auto

from podwire.deviceplugin.records import Record
from podwire.linux.net.borrow import LinkSnapshot, was_moved


class Action(Enum):
    NOTHING = auto()
    MARK_OUT = auto()
    """Record that a pod has it."""
    RESTORE = auto()
    ADOPT = auto()
    """An administrator changed it on the host: record it as it is now, if no pod turns out to have it."""


def decide(record: Record, now: LinkSnapshot | None, *, left: bool, fresh: bool, held: bool | None) -> Action:
    """`now` is None while it is not on the host; `held` is None while no kubelet has answered.

    left: it was elsewhere since it was restored last; fresh: this is the first look since the plugin started.
    """
    if now is None:
        return Action.NOTHING if record.out else Action.MARK_OUT
    if left:
        return Action.RESTORE
    if held or held is None:
        return Action.MARK_OUT if held and not record.out else Action.NOTHING
    if record.out or (fresh and was_moved(record.snapshot, now)):
        return Action.RESTORE
    return Action.ADOPT if now != record.snapshot else Action.NOTHING
