"""Creates and deletes the pods of a controller, with the events that upstream's controllers write."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from podwire.controllers.adoption import controller_reference
from podwire.controllers.kinds import PODS
from podwire.controllers.metadata import PartialObject
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING, Reference
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

BURST = 500
"""Pods that one reconciliation creates or deletes; the rest follows when these were reported."""


def reference_to(owner: Mapping[str, Any]) -> Reference:
    """Returns the reference of an object for events about it."""
    meta = owner["metadata"]
    return Reference(
        owner["kind"],
        meta["name"],
        meta.get("namespace", ""),
        meta.get("uid", ""),
        owner["apiVersion"],
        meta.get("resourceVersion", ""),
    )


def pod_of(template: Mapping[str, Any], owner: Mapping[str, Any], *, name: str = "") -> Object:
    """Returns a pod of a template, owned by its controller; without a name the server generates one."""
    given = template.get("metadata") or {}
    namespace, owner_name = owner["metadata"]["namespace"], owner["metadata"]["name"]
    naming = {"name": name} if name else {"generateName": f"{owner_name}-"}
    kept = {key: given[key] for key in ("labels", "annotations", "finalizers") if given.get(key)}
    metadata = {**naming, "namespace": namespace, **kept, "ownerReferences": [controller_reference(owner)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}


def namespace_is_terminating(error: ApiError) -> bool:
    """Returns whether a creation failed because its namespace is being deleted: nothing is left to do."""
    return any(cause.get("reason") == "NamespaceTerminating" for cause in (error.details or {}).get("causes") or ())


class PodControl:
    """Creates and deletes pods of an owner and records what it did on the owner."""

    def __init__(self, api: Client, recorder: Recorder) -> None:
        self._api = api
        self._recorder = recorder

    async def create(self, pod: Object, owner: Mapping[str, Any]) -> Object:
        """Creates a pod. Raises ApiError after it recorded FailedCreate."""
        try:
            created = await self._api.create(pod)
        except ApiError as error:
            if not namespace_is_terminating(error):
                self._recorder.tell(reference_to(owner), WARNING, "FailedCreate", f"Error creating: {error.message}")
            raise
        message = f"Created pod: {created['metadata']['name']}"
        self._recorder.tell(reference_to(owner), NORMAL, "SuccessfulCreate", message)
        return created

    async def delete(self, pod: PartialObject, owner: Mapping[str, Any]) -> None:
        """Deletes a pod of this uid; one that is gone already raises ApiError 404. FailedDelete is recorded."""
        try:
            await self._api.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
        except ApiError as error:
            if error.code != 404:
                message = f"Error deleting: {error.message}"
                self._recorder.tell(reference_to(owner), WARNING, "FailedDelete", message)
            raise
        self._recorder.tell(reference_to(owner), NORMAL, "SuccessfulDelete", f"Deleted pod: {pod.name}")


async def slow_start(count: int, create: Callable[[int], Awaitable[None]]) -> tuple[int, Exception | None]:
    """Calls `create(index)` in batches of 1, 2, 4, … that run together, and stops after a batch with a failure.

    Returns how many succeeded and the first error. So 10,000 pods that a quota forbids cost one request, not 10,000.
    """
    done, batch = 0, 1
    while done < count:
        size = min(batch, count - done)
        errors = await _together([create(index) for index in range(done, done + size)])
        if errors:
            return done + size - len(errors), errors[0]
        done += size
        batch *= 2
    return done, None


async def _together(calls: Sequence[Awaitable[None]]) -> list[Exception]:
    """Awaits all calls; returns the errors of the API."""
    errors: list[Exception] = []

    async def one(call: Awaitable[None]) -> None:
        try:
            await call
        except (ApiError, ClientError) as error:
            errors.append(error)

    async with asyncio.TaskGroup() as tasks:
        for call in calls:
            tasks.create_task(one(call))
    return errors


async def delete_all(
    pods: Sequence[PartialObject], delete: Callable[[PartialObject], Awaitable[None]]
) -> Exception | None:
    """Deletes pods together; returns the first error."""
    errors = await _together([delete(pod) for pod in pods])
    return errors[0] if errors else None
