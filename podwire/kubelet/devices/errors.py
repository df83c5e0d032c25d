"""Why a pod or a container has to wait for its devices.

DevicesNotReady     for a while, or until something changes; the message is for people
  AllocationFailed  the plugin was asked and did not give them
"""

WAITING, FAILED = "WaitingForDevices", "DeviceAllocationFailed"


class DevicesNotReady(Exception):
    """Told as an event, and as the reason why containers wait."""

    reason = WAITING


class AllocationFailed(DevicesNotReady):
    reason = FAILED
