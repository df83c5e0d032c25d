"""Damaged records: quarantined files of the record store, and the devices they belong to.

A quarantined record cannot tell any more what the link was like on the host. Its file name still tells the pod, the
claim and the device. Its link is an orphan, see attach/orphans.
"""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podwire.dradriver.attach.records import DeviceRecords
from podwire.dradriver.claims.allocations import ClaimRef, PodRef
from podwire.durable.layout import QUARANTINED

SUFFIX = QUARANTINED


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRecord:
    files: tuple[Path, ...]
    pod_uid: str
    claim_uid: str
    device: str
    share_id: str

    @property
    def message(self) -> str:
        help_ = "so the driver cannot restore it; delete the pod if it runs, then check the device"
        return f"the record of device {self.device} was damaged and is quarantined as {self.files[0]}, {help_}"

    def references(self) -> list[ClaimRef | PodRef]:
        """The claim and the pod, if the file is still JSON and names those that its own name says."""
        try:
            line = json.loads(self.files[0].read_bytes().splitlines()[0])
            allocation: dict[str, Any] = line["record"].get("allocation") or line["record"]["order"]
            claim, pod = ClaimRef(**allocation["claim"]), PodRef(**allocation["pod"])
        except (OSError, ValueError, TypeError, LookupError, AttributeError):
            return []
        same = (claim.uid, pod.uid) == (self.claim_uid, self.pod_uid)
        return [claim, pod] if same else []


class DamagedRecords:
    """All quarantined records of a driver's state. Blocks; raises OSError."""

    def __init__(self, state: Path) -> None:
        self._records = DeviceRecords(state)

    def list(self, claim_uid: str = "") -> list[DamagedRecord]:
        """Of one claim, or all."""
        return [
            DamagedRecord(files=tuple(paths), pod_uid=pod, claim_uid=claim, device=device, share_id=share)
            for (pod, claim, device, share), paths in self._records.damaged().items()
            if not claim_uid or claim == claim_uid
        ]

    def discard(self, damaged: DamagedRecord) -> None:
        """Removes the files: the claim is unprepared, so nobody needs them any more."""
        for path in damaged.files:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # there are records of other claims
            damaged.files[0].parent.rmdir()
