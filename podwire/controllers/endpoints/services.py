"""The loop that the controllers of a Service's addresses share: a Service is reconciled when it or its pods change."""

from collections.abc import Mapping
from typing import Any, ClassVar

from podwire.controllers.batching import Batches
from podwire.controllers.context import Context
from podwire.controllers.endpoints.addresses import PodAddresses, read_pod
from podwire.controllers.endpoints.trigger_times import TriggerTimes
from podwire.controllers.kinds import PODS, SERVICES
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.own_writes import OwnWrites
from podwire.controllers.reconciler import Reconciler
from podwire.objects import selectors
from podwire.objects.selectors import NOTHING, LabelSelector
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.watch import Object

SMALL_SERVICE = 16
"""Pods up to which each change of a pod is handled at once."""


class ServiceReconciler(Reconciler):
    """Finds the Services of pods by their selectors."""

    kind: ClassVar[Kind] = SERVICES

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.writes = OwnWrites()
        self.trigger_times = TriggerTimes()
        self._sizes: dict[str, int] = {}
        self._batches = Batches(context.limits.endpoints_batch, self.enqueue)

    def selector_of(self, spec: Mapping[str, Any]) -> LabelSelector:
        selector = spec.get("selector")
        return selectors.from_labels(selector) if selector else NOTHING

    def on_dependent(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is None or latest.resource != resource_of(PODS):
            super().on_dependent(before, now)
            return
        services = set(self.owners_of_orphan(latest))
        if before is not None and now is not None and before.labels != now.labels:
            services.update(self.owners_of_orphan(before))
        for uid in services:
            if self._sizes.get(uid, 0) <= SMALL_SERVICE:
                self.enqueue(uid)
            else:
                self._batches.later(uid)

    def forget(self, uid: str) -> None:
        super().forget(uid)
        self._sizes.pop(uid, None)
        self.trigger_times.forget(uid)

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            await super().run()
        finally:
            self._batches.close()

    def pods_of(self, service: Object) -> list[PodAddresses]:
        """Returns the pods that a Service selects, by name."""
        meta = service["metadata"]
        selector = self.selector_of(service["spec"])
        pods = [pod for pod in self.graph.listed(PODS, meta["namespace"]) if selector.matches(pod.labels)]
        self._sizes[meta["uid"]] = len(pods)
        return [read_pod(pod.json) for pod in sorted(pods, key=lambda pod: pod.name)]


def has_no_pods(service: Object) -> bool:
    """Returns whether somebody else provides the Service's addresses."""
    spec = service["spec"]
    return not spec.get("selector") or spec.get("type") == "ExternalName"
