"""The Endpoints controller: the older form of a Service's addresses, one object of at most a thousand."""

import asyncio
from typing import Any, ClassVar

from podwire.controllers.context import Context
from podwire.controllers.endpoints.addresses import HEADLESS, canonical_subsets, is_headless, subsets_of, truncated
from podwire.controllers.endpoints.services import ServiceReconciler, has_no_pods
from podwire.controllers.endpoints.trigger_times import marked
from podwire.controllers.kinds import ENDPOINTS, PODS, SERVICES
from podwire.controllers.metadata import PartialObject, resource_of
from podwire.controllers.pod_control import namespace_is_terminating, reference_to
from podwire.controllers.work_queue import WorkQueue
from podwire.protocols.k8sapi.client_side.events import WARNING
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

MANAGED_BY, MANAGER = "endpoints.kubernetes.io/managed-by", "endpoint-controller"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"


def labels_of(service: Object) -> dict[str, str]:
    labels = {**(service["metadata"].get("labels") or {}), MANAGED_BY: MANAGER}
    if is_headless(service):
        labels[HEADLESS] = ""
    else:
        labels.pop(HEADLESS, None)
    return labels


def with_subsets(service: Object, subsets: list[dict[str, Any]], existing: Object | None) -> Object | None:
    """Returns the Endpoints to write; None if they are as they should be."""
    meta = service["metadata"]
    kept, over = truncated(subsets)
    old = existing["metadata"] if existing else {"name": meta["name"], "namespace": meta["namespace"]}
    annotations = {key: value for key, value in (old.get("annotations") or {}).items() if key != OVER_CAPACITY}
    if over:
        annotations[OVER_CAPACITY] = "truncated"
    labels = labels_of(service)
    if existing is not None:
        same = canonical_subsets(existing.get("subsets") or ()) == kept
        if same and (old.get("labels") or {}) == labels and (old.get("annotations") or {}) == annotations:
            return None
    metadata = {**old, "labels": labels}
    if annotations or old.get("annotations"):
        metadata["annotations"] = annotations
    return {**(existing or {}), "apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": kept}


class EndpointsController(ServiceReconciler):
    """Keeps the Endpoints of every Service with a selector."""

    name: ClassVar[str] = "endpoints-controller"
    dependents: ClassVar[tuple[Kind, ...]] = (PODS, ENDPOINTS)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._unowned: WorkQueue[tuple[str, str]] = WorkQueue("endpoints", self._delete_unowned, workers=1)

    def on_change(self, before: PartialObject | None, now: PartialObject | None) -> None:
        latest = now or before
        if latest is not None and latest.resource == resource_of(ENDPOINTS):
            service = self.graph.find(SERVICES, latest.name, latest.namespace)
            if service is not None:
                self.enqueue(service.uid)
            return
        super().on_change(before, now)
        if now is None and before is not None and before.resource == resource_of(SERVICES) and self.graph.complete:
            self._unowned.add((before.namespace, before.name))

    def on_synced(self) -> None:
        super().on_synced()
        for endpoints in self.graph.everywhere(ENDPOINTS):
            if endpoints.labels.get(MANAGED_BY) == MANAGER:
                self._unowned.add((endpoints.namespace, endpoints.name))

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(super().run())
            parts.create_task(self._unowned.run())

    async def _delete_unowned(self, key: tuple[str, str]) -> None:
        """Deletes the Endpoints of a Service that is gone."""
        namespace, name = key
        endpoints = self.graph.find(ENDPOINTS, name, namespace)
        if endpoints is None or self.graph.find(SERVICES, name, namespace) is not None:
            return
        try:
            await self.api.delete(ENDPOINTS, name, namespace, uid=endpoints.uid)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def reconcile(self, owner: PartialObject) -> None:
        service = owner.object()
        if has_no_pods(service) or owner.deleting:
            return
        known = self.graph.find(ENDPOINTS, owner.name, owner.namespace)
        if known is not None and self.writes.lags(known):
            return
        pods = self.pods_of(service)
        changed_at = self.trigger_times.of(service, pods)
        subsets = subsets_of(service, pods)
        new = with_subsets(service, subsets, known.object() if known is not None else None)
        if new is not None:
            await self._write(owner, marked(new, changed_at), create=known is None)

    async def _write(self, owner: PartialObject, new: Object, *, create: bool) -> None:
        ref = f"{owner.namespace}/{owner.name}"
        try:
            self.writes.wrote(await (self.api.create(new) if create else self.api.replace(new)))
        except ApiError as error:
            if namespace_is_terminating(error):
                return
            if create and error.code == 409:
                return  # the feed reports it next
            if create:
                reason, message = "FailedToCreateEndpoint", f"Failed to create endpoint for service {ref}"
            else:
                reason, message = "FailedToUpdateEndpoint", f"Failed to update endpoint {ref}"
            if error.code != 409:
                about = reference_to({**new, "metadata": {"uid": "", **new["metadata"]}})
                self.recorder.tell(about, WARNING, reason, f"{message}: {error.message}")
            raise
