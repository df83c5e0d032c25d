"""Devices that are prepared stay in the list as they were: after a restart, and when another instance prepared them.

What the slice said of a device is kept in a file from before anything is done to it; who holds it is in the records.
"""

import asyncio
import contextlib
import json
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from podwire.dradriver.claims.allocations import Offered, Order
from podwire.dradriver.hearing import heard
from podwire.dradriver.ports import Attachments, Inventory, Record
from podwire.durable.files import replace_file
from podwire.linux.errors import LinuxError
from podwire.linux.fs import inotify

_log = logging.getLogger("podwire.dradriver")

_MASK = inotify.CREATE | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE | inotify.ONLY_DIRECTORY
QUIET_SECONDS = 0.1
"""How long one waits for more before looking at the records: what this instance prepares itself is held already."""
Hold = tuple[str, str]
"""A device, and the uid of the claim that has it."""


class Holding:
    """Implements ports.Devices. Blocks but for `run`; called by any thread."""

    def __init__(self, inventory: Inventory, attachments: Attachments, *, records: Path, listed: Path) -> None:
        self._inventory, self._attachments = inventory, attachments
        self._records, self._listed = records, listed
        listed.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._turn = threading.Lock()
        self._held: set[Hold] = set()
        self._coming: set[str] = set()
        self._names: set[Path] | None = None

    def find(self, device: str) -> Offered | None:
        return self._inventory.find(device)

    def attributes(self, device: str) -> dict[str, Any]:
        """As the slice has them."""
        return dict((self._inventory.listed(device) or {}).get("attributes") or {})

    def keep(self, orders: Sequence[Order]) -> None:
        """They are about to be prepared. Raises OSError."""
        with self._turn:
            for each in orders:
                device, claim = each.offered.device, each.claim.uid
                self._coming.add(claim)
                if not any(device == other for other, _ in self._held):
                    replace_file(self._path(device), json.dumps(self._inventory.listed(device)).encode())
                if (device, claim) not in self._held:
                    self._inventory.hold(device, claim)
                    self._held.add((device, claim))

    def settle(self, claim_uid: str) -> None:
        """Hold what there are records for of a claim, and nothing else of it."""
        with self._turn:
            self._coming.discard(claim_uid)
            held = {each for each in self._held if each[1] == claim_uid}
            self._hold_these(self._attachments.of_claim(claim_uid), held)

    def settle_all(self) -> None:
        """The same of all claims that nobody is at."""
        with self._turn:
            held = {each for each in self._held if each[1] not in self._coming}
            records = [each for each in self._attachments.records() if each.order.claim.uid not in self._coming]
            self._hold_these(records, held)

    def _hold_these(self, records: Iterable[Record], held: set[Hold]) -> None:
        found = {(each.order.offered.device, each.order.claim.uid): each for each in records}
        for hold in found.keys() - held:
            record = found[hold]
            self._inventory.hold(*hold, offered=record.order.offered, listed=self._read(hold[0]), mac=record.mac)
            self._held.add(hold)
        for hold in held - found.keys():
            self._inventory.release(*hold)
            self._held.discard(hold)
            if not any(hold[0] == other for other, _ in self._held):
                self._path(hold[0]).unlink(missing_ok=True)

    async def run(self) -> None:
        """Until cancelled: hold what other instances of the driver prepare, release what they give back."""
        told = asyncio.Event()
        with contextlib.closing(inotify.Inotify()) as notes:

            def listen() -> None:
                notes.read()
                told.set()

            with heard(notes.fileno(), QUIET_SECONDS, listen):
                while True:
                    _watch(notes, self._records)
                    await asyncio.to_thread(self._settle_if_new)
                    await told.wait()
                    told.clear()

    def _settle_if_new(self) -> None:
        """Records come and go with claims; what else is written there concerns nobody here."""
        try:
            names = {Path(at, each) for at, _, files in os.walk(self._records) for each in files if _is_record(each)}
            if names != self._names:
                self.settle_all()
                self._names = names
        except OSError as error:
            _log.error("it is not known which devices are prepared", extra={"why": str(error)})

    def _read(self, device: str) -> dict[str, Any] | None:
        try:
            found = json.loads(self._path(device).read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _path(self, device: str) -> Path:
        return self._listed / f"{quote(device, safe='')}.json"


def _is_record(name: str) -> bool:
    return name.endswith(".json")


def _watch(notes: inotify.Inotify, directory: Path) -> None:
    """Before anybody looks into it: what comes between is told."""
    for each in (directory, *directory.glob("*/")):
        with contextlib.suppress(LinuxError):  # it is gone already
            notes.add(each, _MASK)
