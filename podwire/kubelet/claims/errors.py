"""Errors of the claim manager. Both are temporary; their messages are for events.

ClaimsNotReady   nothing is started for the pod before its claims are prepared
NotUnprepared    the pod has not ended before its drivers have unprepared its claims
"""

WAITING = "WaitingForDynamicResources"
PREPARE, UNPREPARE = "FailedPrepareDynamicResources", "FailedUnprepareDynamicResources"


class ClaimsNotReady(Exception):
    reason = PREPARE

    @property
    def event_message(self) -> str:
        return f"Failed to prepare dynamic resources: {self}"


class NotUnprepared(Exception):
    reason = UNPREPARE

    @property
    def event_message(self) -> str:
        return f"Failed to unprepare dynamic resources: {self}"
