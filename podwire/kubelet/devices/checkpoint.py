"""The checkpoint of devices: which pod holds which devices, one record for each pod.

A record is on disk before it is reported that the pod has its devices, and removed before any of them is given to
another pod. So no device is ever held by two pods, and none is lost. Damaged files are quarantined, and the devices
recovered from the runtime (`recovery.py`). A file that was written by a newer podwire stops the kubelet (`NewerFormat`)
and is not touched.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from podwire.durable.codecs import json_codec
from podwire.durable.layout import Layout
from podwire.durable.records import Problem, Records
from podwire.failpoints import declare, failpoint
from podwire.kubelet import checkpoint_format0
from podwire.kubelet.devices.pod_devices import PodDevices
from podwire.linux.errors import LinuxError
from podwire.tasks.keyed_locks import KeyedLocks
from podwire.tasks.uncancelled import thread_to_completion

log = logging.getLogger(__name__)

FORMAT = 1
LAYOUT = Layout(suffix="")
RESOURCES = "resources"
"""The record of the names of all resources that plugins have ever registered here."""

CHOSEN = declare("devices.chosen", "a pod's devices are selected; that is not on disk yet")
HELD = declare("devices.held", "the devices that a pod holds are on disk; nobody was notified yet")
RELEASED = declare("devices.released", "a pod's record of devices is off the disk; nobody was notified yet")


class NotWritten(OSError):
    """The checkpoint cannot be written; the message says why."""


class DeviceCheckpoint:
    def __init__(self, directory: Path, report: Callable[[Problem], None] | None = None) -> None:
        self._files = Records(
            directory, json_codec(PodDevices), format=FORMAT, migrate=_migrate_pod, layout=LAYOUT, check=_check,
            ignore=(RESOURCES,), report=report, directory_mode=0o750,
        )  # fmt: skip
        self._names = Records(
            directory, json_codec(list[str]), format=FORMAT, migrate=_migrate_names, layout=LAYOUT, report=report,
            directory_mode=0o750,
        )  # fmt: skip
        self._pods: dict[str, PodDevices] = {}
        self._holders: dict[str, dict[str, str]] = {}
        """By resource and device id: the uid of the pod."""
        self._locks = KeyedLocks()
        self._leaving: dict[str, PodDevices] = {}
        """Pods whose records are being removed: their devices are still theirs."""
        self.resources: set[str] = set()

    def load(self) -> list[str]:
        """Read everything; returns the uids of pods whose records are damaged. Blocks. Raises NewerFormat."""
        self._files.sweep()
        unreadable = []
        for uid in sorted(self._files.keys()):
            try:
                devices = self._files.get(uid)
            except LinuxError as error:
                log.warning("cannot read devices of pod", extra={"uid": uid, "error": str(error)})
                unreadable.append(uid)
                continue
            if devices is not None:
                self.restore(devices)
        with contextlib.suppress(LinuxError):  # then plugins that register add the names again
            self.resources.update(self._names.get(RESOURCES) or ())
        damaged = {*unreadable, *self._files.quarantined()} - {RESOURCES}
        return sorted(damaged - self._pods.keys())

    def restore(self, devices: PodDevices) -> None:
        """Take a record for true, whatever it says; the resources that it names become known."""
        self._pods[devices.uid] = devices
        self.resources.update(devices.ids())
        for resource, ids in devices.ids().items():
            self._holders.setdefault(resource, {}).update(dict.fromkeys(ids, devices.uid))

    @property
    def uids(self) -> set[str]:
        return {*self._pods, *self._leaving}

    def get(self, uid: str) -> PodDevices | None:
        return self._pods.get(uid)

    def holders(self, resource: str) -> Mapping[str, str]:
        """By device id: the uid of the pod that holds it."""
        return self._holders.get(resource, {})

    def conflicts(self, devices: PodDevices) -> bool:
        """Whether another pod holds any of these devices."""
        return any(
            self.holders(resource).get(id_, devices.uid) != devices.uid
            for resource, ids in devices.ids().items()
            for id_ in ids
        )

    async def hold(self, devices: PodDevices) -> None:
        """Give a pod these devices instead of those that it has; all or nothing. Raises NotWritten.

        The caller has found that no other pod holds any of them, and has not awaited anything since.
        """
        if self.conflicts(devices):
            raise LookupError(f"pod {devices.namespace}/{devices.name} cannot hold devices that another pod holds")
        before = self._pods.get(devices.uid)
        self.restore(devices)  # until the record is written, the pod holds its earlier devices, too
        try:
            failpoint(CHOSEN)
            await self.write(devices.uid)
            failpoint(HELD)
        except NotWritten:
            del self._pods[devices.uid]
            if before is not None:
                self._pods[devices.uid] = before
            raise
        finally:
            for candidate in (before, devices):
                if candidate is not None:
                    self._free(candidate)

    def note(self, devices: PodDevices) -> None:
        """Update a record in memory; `write` brings it to the disk."""
        if devices.uid in self._pods:
            self._pods[devices.uid] = devices

    async def release(self, uid: str) -> dict[str, set[str]]:
        """The pod has ended; returns the devices, by resource, that are free now. Raises NotWritten."""
        devices = self._pods.pop(uid, None) or self._leaving.get(uid)
        if devices is None:
            return {}
        self._leaving[uid] = devices
        await self.write(uid)
        failpoint(RELEASED)
        if self._leaving.pop(uid, None) is None:
            return {}
        self._free(devices)
        return devices.ids()

    async def write(self, uid: str) -> None:
        """Bring the record of a pod to the disk, or remove it there if the pod has none. Raises NotWritten."""
        async with self._locks.hold(uid):
            devices = self._pods.get(uid)
            try:
                if devices is None:
                    await thread_to_completion(self._files.remove, uid)
                else:
                    await thread_to_completion(self._files.put, uid, devices)
            except LinuxError as error:
                raise NotWritten(str(error)) from error

    async def add_resources(self, resources: Iterable[str]) -> None:
        """Remember for ever that plugins register these resources. Raises NotWritten."""
        if new := set(resources) - self.resources:
            self.resources |= new
            try:
                await thread_to_completion(self._names.put, RESOURCES, sorted(self.resources))
            except LinuxError as error:
                raise NotWritten(str(error)) from error

    def discard_damaged(self, uid: str) -> None:
        """Remove the quarantined files of a pod whose devices are recovered or free. Blocks."""
        with contextlib.suppress(LinuxError):
            self._files.discard_quarantined(uid)

    def _free(self, devices: PodDevices) -> None:
        """Free what this record names and the current one does not."""
        now = self._pods.get(devices.uid)
        kept = now.ids() if now is not None else {}
        for resource, ids in devices.ids().items():
            holders = self._holders[resource]
            for id_ in ids - kept.get(resource, set()):
                if holders.get(id_) == devices.uid:
                    del holders[id_]


def _check(key: str, devices: PodDevices) -> None:
    if devices.uid != key:
        raise ValueError(f"is the record of pod {devices.uid}")


def _migrate_pod(format_: int, data: bytes) -> PodDevices:
    _require_format_0(format_)
    return checkpoint_format0.decode(data, PodDevices)


def _migrate_names(format_: int, data: bytes) -> list[str]:
    _require_format_0(format_)
    return checkpoint_format0.decode(data, list[str])


def _require_format_0(format_: int) -> None:
    if format_ != 0:
        raise ValueError(f"format {format_} is not supported")
