"""Prepared devices stay published as they were: after a restart, and when another instance prepared them.

A prepared device's link may be in a pod, where its attributes cannot be read. So the device as the ResourceSlice has it
is written to STATE/listed/DEVICE.json before anything is done to the link. The records tell which claims hold it.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from podwire.dradriver.attach.attachments import Attachments
from podwire.dradriver.attach.records import Record
from podwire.dradriver.claims.allocations import Allocation, Device
from podwire.dradriver.inventory.inventory import Inventory
from podwire.durable.codecs import json_codec
from podwire.durable.files import Durability
from podwire.durable.records import Records
from podwire.linux.errors import LinuxError
from podwire.linux.fs import inotify
from podwire.tasks.debounce import debounced_reader

_log = logging.getLogger("podwire.dradriver")

_MASK = inotify.CREATE | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE | inotify.ONLY_DIRECTORY
Hold = tuple[str, str]
"""A device's name, and the uid of a claim that holds it."""
_PUBLISHED = json_codec(dict[str, Any])


class PreparedDevices:
    """The inventory, and which of its devices claims hold. Blocks but for `run`; called by any thread."""

    def __init__(
        self, inventory: Inventory, attachments: Attachments, *, records: Path, listed: Path, quiet: float = 0.1
    ) -> None:
        """`quiet` are the seconds by which changes in the records' directory are debounced; this instance's own records
        are held already."""
        self._inventory, self._attachments, self._directory, self._quiet = inventory, attachments, records, quiet
        self._listed: Records[dict[str, Any]] = Records(
            listed, _PUBLISHED, format=1, migrate=lambda _format, data: _PUBLISHED.decode(data)
        )
        self._lock = threading.Lock()
        self._held: set[Hold] = set()
        self._preparing: set[str] = set()
        """Claims that are being prepared, whose records may not exist yet."""
        self._names: set[Path] | None = None

    def find(self, name: str) -> Device | None:
        return self._inventory.find(name)

    def attributes(self, name: str) -> dict[str, Any]:
        """The device's attributes as published in the ResourceSlice."""
        return dict((self._inventory.listed(name) or {}).get("attributes") or {})

    def reserve(self, allocations: Sequence[Allocation]) -> None:
        """Holds devices that are about to be prepared. Raises OSError."""
        with self._lock:
            for allocation in allocations:
                name, claim = allocation.device.name, allocation.claim.uid
                self._preparing.add(claim)
                if not any(name == held for held, _ in self._held):
                    published = self._inventory.listed(name) or {}
                    self._listed.put(quote(name, safe=""), published, Durability.PROCESS_DEATH)
                if (name, claim) not in self._held:
                    self._inventory.hold(name, claim)
                    self._held.add((name, claim))

    def are_held_by_others(self, allocations: Sequence[Allocation]) -> bool:
        """Whether other claims hold whole devices of these."""
        claims = {allocation.device.name: allocation.claim.uid for allocation in allocations if not allocation.share_id}
        with self._lock:
            return any(claims.get(name, claim) != claim for name, claim in self._held)

    def sync_claim(self, claim_uid: str) -> None:
        """Holds what the claim's records name, and releases the rest of what it held: preparing ended."""
        with self._lock:
            self._preparing.discard(claim_uid)
            held = {hold for hold in self._held if hold[1] == claim_uid}
            self._sync(self._attachments.of_claim(claim_uid), held)

    def sync_all(self) -> None:
        """Does the same for all claims that are not being prepared."""
        with self._lock:
            held = {hold for hold in self._held if hold[1] not in self._preparing}
            records = [
                record for record in self._attachments.records() if record.allocation.claim.uid not in self._preparing
            ]
            self._sync(records, held)

    def _sync(self, records: Iterable[Record], held: set[Hold]) -> None:
        recorded = {(record.allocation.device.name, record.allocation.claim.uid): record for record in records}
        for hold in recorded.keys() - held:
            record = recorded[hold]
            published = self._listed.get(quote(hold[0], safe=""))
            self._inventory.hold(*hold, device=record.allocation.device, listed=published, mac=record.mac)
            self._held.add(hold)
        for hold in held - recorded.keys():
            self._inventory.release(*hold)
            self._held.discard(hold)
            if not any(hold[0] == name for name, _ in self._held):
                self._listed.remove(quote(hold[0], safe=""), Durability.PROCESS_DEATH)

    def remove_unused(self) -> None:
        """Removes what is kept of devices that no claim holds: a driver was killed before it wrote the first record, or
        after it removed the last one. The caller holds the InstanceLock, so that no other instance is in between.

        A link that still has the tag of a claim is not a device of the inventory, and needs its file to be recovered.
        """
        with self._lock:
            held = {name for name, _ in self._held}
            held |= {record.allocation.device.name for record in self._attachments.records()}
            names = {unquote(key) for key in self._listed.load()}
            for name in names - held:
                if self._inventory.find(name) is not None:
                    self._listed.remove(quote(name, safe=""), Durability.PROCESS_DEATH)

    async def run(self) -> None:
        """Until cancelled: follows the records that other instances of the driver write and remove."""
        changed = asyncio.Event()
        with contextlib.closing(inotify.Inotify()) as watch:

            def read() -> None:
                watch.read()
                changed.set()

            with debounced_reader(watch.fileno(), self._quiet, read):
                while True:
                    _watch(watch, self._directory)
                    await asyncio.to_thread(self._sync_if_changed)
                    await changed.wait()
                    changed.clear()

    def _sync_if_changed(self) -> None:
        """Compares the names of the records; their contents do not matter here."""
        try:
            names = {
                Path(directory, name)
                for directory, _, files in os.walk(self._directory)
                for name in files
                if name.endswith(".json")
            }
            if names != self._names:
                self.sync_all()
                self._names = names
        except OSError as error:
            _log.error("cannot read records of prepared devices", extra={"error": str(error)})


def _watch(watch: inotify.Inotify, directory: Path) -> None:
    """Watches before anybody lists, so that a record which is written between the two is not missed."""
    for path in (directory, *directory.glob("*/")):
        with contextlib.suppress(LinuxError):  # it is gone already
            watch.add(path, _MASK)
