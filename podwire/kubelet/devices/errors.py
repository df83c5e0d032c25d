"""Errors of the device manager. They are temporary; the messages are for events and waiting reasons.

DevicesNotReady     a plugin is not registered, or too few devices are free or healthy
  AllocationFailed  the plugin was asked to allocate and failed
"""

WAITING, FAILED = "WaitingForDevices", "DeviceAllocationFailed"


class DevicesNotReady(Exception):
    """`reason` is for the event, and for the waiting state of containers."""

    reason = WAITING


class AllocationFailed(DevicesNotReady):
    reason = FAILED
