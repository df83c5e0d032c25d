"""What is to be done with a device of the host, given where it is and who has it. Pure."""

from enum import Enum, auto

from podwire.deviceplugin.records import Record
from podwire.deviceplugin.snapshots import Snapshot, travelled


class Duty(Enum):
    NOTHING = auto()
    OUT = auto()
    """Put on record that somebody has it."""
    RESTORE = auto()
    """Make it what it was."""
    KEEP = auto()
    """Somebody on the host changed it: that is how it is from now on, if no pod turns out to have it."""


def duty(record: Record, now: Snapshot | None, *, left: bool, fresh: bool, held: bool | None) -> Duty:
    """`now` is None while it is not on the host; `held` while no kubelet has told.

    left: it was elsewhere since it was last made what it was; fresh: this is the first look since the plugin began.
    """
    if now is None:
        return Duty.NOTHING if record.out else Duty.OUT
    if left:
        return Duty.RESTORE
    if held or held is None:
        return Duty.OUT if held and not record.out else Duty.NOTHING
    if record.out or (fresh and travelled(record.snapshot, now)):
        return Duty.RESTORE
    return Duty.KEEP if now != record.snapshot else Duty.NOTHING
