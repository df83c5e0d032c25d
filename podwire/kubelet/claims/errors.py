"""Why a pod has to wait for its claims, or with its end.

ClaimsNotReady   nothing is started for the pod before it has them
NotUnprepared    the pod has not ended before its drivers have let go
Both may pass; their messages are for people, as events.
"""

WAITING = "WaitingForDynamicResources"
PREPARE, UNPREPARE = "FailedPrepareDynamicResources", "FailedUnprepareDynamicResources"


class ClaimsNotReady(Exception):
    reason = PREPARE

    @property
    def told(self) -> str:
        return f"Failed to prepare dynamic resources: {self}"


class NotUnprepared(Exception):
    reason = UNPREPARE

    @property
    def told(self) -> str:
        return f"Failed to unprepare dynamic resources: {self}"
