"""Who holds which devices: one durable file for each pod, so that no device is ever given twice, and none lost.

A file is written before anybody is told that a pod has its devices, and removed before any of them is given to another.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path

from podwire.durable import files
from podwire.failpoints import declare, failpoint
from podwire.kubelet.devices.records import PodDevices, decode, decode_names, encode
from podwire.kubelet.sealed import Damaged
from podwire.linux.errors import LinuxError

log = logging.getLogger(__name__)

RESOURCES = "resources"
"""The file of the names of all resources that plugins ever brought here."""

CHOSEN = declare("devices.chosen", "a pod's devices are chosen; that is not on disk yet")
HELD = declare("devices.held", "which devices a pod holds is on disk; nobody was told yet")
RELEASED = declare("devices.released", "it is off the disk which devices a pod held; nobody was told yet")


class NotWritten(OSError):
    """The disk does not take it; the message says why."""


class DeviceCheckpoint:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._records: dict[str, PodDevices] = {}
        self._holders: dict[str, dict[str, str]] = {}
        """By resource and id, the uid of the pod."""
        self._turns: dict[str, asyncio.Lock] = {}
        self._leaving: dict[str, PodDevices] = {}
        """Pods whose files are being removed: their devices are still theirs."""
        self.resources: set[str] = set()

    def load(self) -> list[str]:
        """Read everything; the uids whose files are damaged. Blocks."""
        self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        files.sweep(self._directory)
        damaged = []
        for path in sorted(self._directory.iterdir()):
            try:
                if path.name == RESOURCES:
                    self.resources.update(decode_names(path.read_bytes()))
                else:
                    self.restore(decode(path.read_bytes()))
            except (Damaged, OSError) as error:
                log.warning("what is written of devices is damaged", extra={"file": str(path), "why": str(error)})
                if path.name != RESOURCES:
                    damaged.append(path.name)
        return damaged

    def restore(self, record: PodDevices) -> None:
        """Take a record for true, whatever it says; the resources that it names are known, too."""
        self._records[record.uid] = record
        self.resources.update(record.ids())
        self._claim(record)

    @property
    def uids(self) -> set[str]:
        return {*self._records, *self._leaving}

    def get(self, uid: str) -> PodDevices | None:
        return self._records.get(uid)

    def holders(self, resource: str) -> Mapping[str, str]:
        """By id, the uid of the pod that has it."""
        return self._holders.get(resource, {})

    def clashes(self, record: PodDevices) -> bool:
        """Whether another pod has any of its devices."""
        return any(
            self.holders(resource).get(each, record.uid) != record.uid
            for resource, ids in record.ids().items()
            for each in ids
        )

    async def hold(self, record: PodDevices) -> None:
        """Give a pod these devices instead of those that it has; all or nothing. NotWritten.

        Nobody else must have any: whoever finds that out and calls this does not wait in between.
        """
        if self.clashes(record):
            raise LookupError(f"{record.namespace}/{record.name} was to have devices that another pod has")
        before = self._records.get(record.uid)
        self.restore(record)  # until the file is there, what the pod had is its own, too
        try:
            failpoint(CHOSEN)
            await self.write(record.uid)
            failpoint(HELD)
        except NotWritten:
            del self._records[record.uid]
            if before is not None:
                self._records[record.uid] = before
            raise
        finally:
            for each in (before, record):
                if each is not None:
                    self._let_go(each)

    def note(self, record: PodDevices) -> None:
        """More is known of what a pod has; to be written when there is time."""
        if record.uid in self._records:
            self._records[record.uid] = record

    async def release(self, uid: str) -> dict[str, set[str]]:
        """The pod is gone: its devices, by resource, are nobody's now; nothing when it has none. NotWritten."""
        record = self._records.pop(uid, None) or self._leaving.get(uid)
        if record is None:
            return {}
        self._leaving[uid] = record
        await self.write(uid)
        failpoint(RELEASED)
        if self._leaving.pop(uid, None) is None:
            return {}
        self._let_go(record)
        return record.ids()

    async def write(self, uid: str) -> None:
        """Have on disk what is known of a pod now. NotWritten."""
        async with self._turns.setdefault(uid, asyncio.Lock()):
            record = self._records.get(uid)
            path = self._directory / uid
            try:
                if record is None:
                    await _to_its_end(asyncio.to_thread(files.remove_durably, path))
                else:
                    await _to_its_end(asyncio.to_thread(files.write_durably, path, encode(record)))
            except LinuxError as error:
                raise NotWritten(str(error)) from error
        if uid not in self._records:
            self._turns.pop(uid, None)

    async def know(self, resources: Iterable[str]) -> None:
        """Remember for ever that plugins bring these. NotWritten."""
        if new := set(resources) - self.resources:
            self.resources |= new
            names = encode(sorted(self.resources))
            try:
                await asyncio.to_thread(files.write_durably, self._directory / RESOURCES, names)
            except LinuxError as error:
                raise NotWritten(str(error)) from error

    def discard(self, uid: str) -> None:
        """Remove a damaged file of which nothing is to be kept. Blocks."""
        with contextlib.suppress(LinuxError):
            files.remove_durably(self._directory / uid)

    def _claim(self, record: PodDevices) -> None:
        for resource, ids in record.ids().items():
            self._holders.setdefault(resource, {}).update(dict.fromkeys(ids, record.uid))

    def _let_go(self, record: PodDevices) -> None:
        """Of what this record says, all that the one that counts does not."""
        now = self._records.get(record.uid)
        kept = now.ids() if now is not None else {}
        for resource, ids in record.ids().items():
            holders = self._holders[resource]
            for each in ids - kept.get(resource, set()):
                if holders.get(each) == record.uid:
                    del holders[each]


async def _to_its_end(work: Coroutine[None, None, object]) -> None:
    """A caller that is cancelled waits: what is on disk must be what is remembered."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise
