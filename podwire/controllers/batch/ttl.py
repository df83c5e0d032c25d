"""Deletes finished Jobs after their `ttlSecondsAfterFinished`."""

import logging
from typing import ClassVar

from podwire.controllers.batch.job_decision import COMPLETE, FAILED, true_condition
from podwire.controllers.kinds import JOBS
from podwire.controllers.metadata import PartialObject
from podwire.controllers.reconciler import Reconciler
from podwire.objects.times import parse
from podwire.protocols.k8sapi.client_side import Propagation
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

LONGEST_SLEEP = 3600.0
"""Seconds after which the clock is read again: a machine may have been suspended."""


def expires_at(job: Object) -> float | None:
    """Returns when a finished Job is to be deleted; None if it is kept."""
    ttl, finished = job["spec"].get("ttlSecondsAfterFinished"), true_condition(job, COMPLETE, FAILED)
    if ttl is None or finished is None or job["metadata"].get("deletionTimestamp"):
        return None
    return parse(finished["lastTransitionTime"]) + float(ttl)


class TtlController(Reconciler):
    """Reconciles a Job when it changes and when its time is over."""

    name: ClassVar[str] = "ttl-after-finished-controller"
    kind: ClassVar[Kind] = JOBS

    async def reconcile(self, owner: PartialObject) -> None:
        end = expires_at(owner.object())
        if end is None:
            return
        left = end - self.clock.wall()
        if left > 0:
            self.enqueue_after(owner.uid, min(left, LONGEST_SLEEP))
            return
        try:
            fresh = await self.api.get(JOBS, owner.name, owner.namespace)  # its ttl may have been extended
            if fresh["metadata"]["uid"] == owner.uid and expires_at(fresh) == end:
                log.info("deleting finished job", extra={"job": str(owner)})
                await self.api.delete(
                    JOBS, owner.name, owner.namespace, propagation=Propagation.FOREGROUND, uid=owner.uid
                )
        except ApiError as error:
            if error.code not in (404, 409):
                raise
