"""The claims that pods of this node use: one durable file for each, written before a driver is asked for anything, and
removed after it has let go. Whatever dies when, no claim that a driver may have prepared is forgotten."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from podwire.durable import files
from podwire.kubelet.claims.claim_info import ClaimInfo, decode, encode
from podwire.kubelet.claims.lost import salvage
from podwire.kubelet.sealed import Damaged
from podwire.linux.errors import LinuxError

log = logging.getLogger(__name__)

ASIDE = ".damaged"
"""What files are called by that cannot be read: they stay until it is known that nothing is left of their claims."""


class NotWritten(OSError):
    """The disk does not take it; the message says why."""


class ClaimCheckpoint:
    """Whoever changes a record has its claim's turn."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._records: dict[str, ClaimInfo] = {}
        self._unsure: set[str] = set()
        """Claims of which nobody knows whether the disk has what is remembered."""
        self.lost: dict[str, ClaimInfo] = {}
        """What is left of damaged files, until drivers have let go or a pod has the claim recorded anew."""

    def load(self) -> None:
        """Read everything. A claim whose file is damaged is prepared again when a pod needs it, or is lost. Blocks."""
        self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        files.sweep(self._directory)
        for path in sorted(self._directory.iterdir()):
            if path.name.endswith(ASIDE):
                self._lose(path)
                continue
            try:
                record = decode(path.read_bytes())
            except (Damaged, OSError) as error:
                log.warning("what is written of a claim is damaged", extra={"file": str(path), "why": str(error)})
                self._lose(path.rename(path.with_name(path.name + ASIDE)))
            else:
                self._records[record.uid] = record

    def _lose(self, aside: Path) -> None:
        uid = aside.name.removesuffix(ASIDE)
        try:
            self.lost[uid] = salvage(uid, aside.read_bytes())
        except OSError:
            self.lost[uid] = salvage(uid, b"")

    @property
    def records(self) -> Mapping[str, ClaimInfo]:
        return self._records

    def of_pod(self, uid: str) -> list[ClaimInfo]:
        return [each for each in self._records.values() if each.used_by(uid)]

    async def put(self, record: ClaimInfo, *, durably: bool = True) -> None:
        """Nothing is written when nothing has changed. NotWritten.

        What is only true until the machine ends needs not be on the disk when that loses its power.
        """
        before = self._records.get(record.uid)
        if before == record and record.uid not in self._unsure:
            return
        self._records[record.uid] = record
        self._unsure.add(record.uid)
        try:
            write = files.write_durably if durably else files.replace_file
            await _on_disk(write, self._directory / record.uid, encode(record))
        except NotWritten:
            del self._records[record.uid]
            if before is not None:
                self._records[record.uid] = before
            raise
        self._unsure.discard(record.uid)

    async def drop(self, uid: str) -> None:
        """NotWritten."""
        await _on_disk(files.remove_durably, self._directory / uid)
        self._records.pop(uid, None)
        self._unsure.discard(uid)

    async def forget_lost(self, uid: str) -> None:
        """NotWritten."""
        await _on_disk(files.remove_durably, self._directory / (uid + ASIDE))
        self.lost.pop(uid, None)


async def _on_disk(work: Callable[..., object], *words: Path | bytes) -> None:
    """A caller that is cancelled waits: what is on disk must be what is remembered."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *words))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        task.exception()  # whoever asks next finds out
        raise
    except LinuxError as error:
        raise NotWritten(str(error)) from error
