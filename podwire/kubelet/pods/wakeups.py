"""Wakes pod workers: the one place that says which event lets which pod go on.

A worker sleeps until its pod changes in the API, until a time that its plan named has come, or until one of the events
below is reported. An event carries no state: the worker looks at everything again, so that a late or repeated event
costs one look and is never wrong.

    event              reported by                         wakes                       and lets it retry at once
    runtime_changed    RuntimeCache                        the pod                     its sandbox, if it has none
    objects_changed    ReferencedObjects                   pods that use the object    containers, volumes
    probe_changed      Probes                              the pod                     -
    network_changed    RuntimeHealth, CNI directories      every pod                   its sandbox
    sandbox_freed      SandboxQueue (one was stopped)      the first that waits        its sandbox
    devices_changed    DeviceManager                       pods that wait for devices  sandbox, containers
    device_changed     DeviceManager                       the pod (status, event)     -
    claims_changed     ClaimManager                        pods that wait for claims   sandbox, containers, claims
    claim_changed      ClaimManager                        the pod                     the same, if it waits for claims
    resources_freed    PodWorkers (ended, or resized)      pods not admitted yet, and  -
                                                           those that wait to be resized

A change of a pod that has no worker, and everything in `orphans_possible`, wakes the collector of orphans instead.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

from podwire.objects.pods import Pod


class Worker(Protocol):
    """The events that a pod's worker handles; PodWorker implements it."""

    @property
    def pod(self) -> Pod: ...

    @property
    def admitted(self) -> bool: ...

    @property
    def waits_for_resize(self) -> bool: ...

    def wake(self) -> None: ...

    def runtime_changed(self) -> None: ...

    def objects_changed(self) -> None: ...

    def network_changed(self) -> None: ...

    def devices_changed(self) -> None: ...

    def device_changed(self, problem: str) -> None: ...

    def claims_changed(self) -> None: ...

    def claim_changed(self) -> None: ...


class Wakeups:
    """Handed to everything that reports events; `workers` is by pod uid and belongs to PodWorkers."""

    def __init__(self) -> None:
        self.workers: Mapping[str, Worker] = {}
        self.unowned: set[str] = set()
        """Pods in the runtime that had no worker when they changed."""
        self.orphan_check = asyncio.Event()

    def pod(self, uid: str) -> Pod | None:
        return self.workers[uid].pod if uid in self.workers else None

    def runtime_changed(self, uid: str) -> None:
        worker = self.workers.get(uid)
        if worker is None:
            self.unowned.add(uid)
            self.orphan_check.set()
        else:
            worker.runtime_changed()

    def objects_changed(self, uids: Iterable[str]) -> None:
        for uid in uids:
            if (worker := self.workers.get(uid)) is not None:
                worker.objects_changed()

    def probe_changed(self, uid: str) -> None:
        if (worker := self.workers.get(uid)) is not None:
            worker.wake()

    def network_changed(self) -> None:
        for worker in self.workers.values():
            worker.network_changed()

    def sandbox_freed(self, uid: str) -> None:
        if (worker := self.workers.get(uid)) is not None:
            worker.network_changed()

    def devices_changed(self) -> None:
        for worker in self.workers.values():
            worker.devices_changed()

    def device_changed(self, uid: str, problem: str) -> None:
        """`problem` is empty unless the devices that the pod holds became worse."""
        if (worker := self.workers.get(uid)) is not None:
            worker.device_changed(problem)

    def claims_changed(self) -> None:
        for worker in self.workers.values():
            worker.claims_changed()

    def claim_changed(self, uid: str) -> None:
        if (worker := self.workers.get(uid)) is not None:
            worker.claim_changed()

    def resources_freed(self) -> None:
        waiting = [worker for worker in self.workers.values() if not worker.admitted or worker.waits_for_resize]
        for worker in sorted(waiting, key=lambda worker: -worker.pod.spec.priority):
            worker.wake()

    def orphans_possible(self) -> None:
        """The runtime was listed, all pods are known, or it is time to look for leftovers of pods that are gone."""
        self.orphan_check.set()
