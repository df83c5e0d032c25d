"""Damaged records: quarantined files of the record store, the devices they belong to, and the links left in pods.

A quarantined record cannot tell any more what the link was like on the host. Its file name still tells the pod, the
claim and the device; when the claim is unprepared, a whole link is moved out of its pod before the pod's namespace
ends, because a virtual link ends with its namespace.
"""

import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from podwire.dradriver.attach.records import TAG, DeviceRecords
from podwire.dradriver.claims.allocations import ClaimRef, PodRef
from podwire.durable.layout import QUARANTINED
from podwire.linux.errors import LinuxError
from podwire.linux.net.network import KernelNetwork
from podwire.linux.values import Link

SUFFIX = QUARANTINED

_log = logging.getLogger("podwire.dradriver")
_HERE = "/proc/thread-self/ns/net"


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRecord:
    files: tuple[Path, ...]
    pod_uid: str
    claim_uid: str
    device: str
    share_id: str

    @property
    def message(self) -> str:
        help_ = "so the driver cannot restore it; delete the pod, then check the device"
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
        self._state, self._records = state, DeviceRecords(state)

    def list(self, claim_uid: str = "") -> list[DamagedRecord]:
        """Of one claim, or all."""
        return [
            DamagedRecord(files=tuple(paths), pod_uid=pod, claim_uid=claim, device=device, share_id=share)
            for (pod, claim, device, share), paths in self._records.damaged().items()
            if not claim_uid or claim == claim_uid
        ]

    def discard(self, damaged: DamagedRecord) -> None:
        """Rescues the link, then removes the files: the claim is unprepared, so nobody needs them any more."""
        self._rescue(damaged)
        for path in damaged.files:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # there are records of other claims
            damaged.files[0].parent.rmdir()

    def _rescue(self, damaged: DamagedRecord) -> None:
        """Moves the link to the calling thread's network namespace. Failures are logged: a retry would not help."""
        fields = {"device": damaged.device}
        name = self._host_name(damaged.device)
        if not name:
            _log.warning("device of damaged record is left as it is", extra=fields)
            return
        try:
            with contextlib.closing(KernelNetwork(self._state / "netns" / damaged.pod_uid)) as pod:
                for link in _tagged_links(pod, damaged):
                    pod.links.change(link.ifindex, up=False, alias="")
                    pod.links.move(link.ifindex, Path(_HERE), name)
                    _log.warning("moved device of damaged record to the host, without its settings", extra=fields)
        except LinuxError as error:
            _log.warning("cannot move device of damaged record to the host", extra=fields | {"error": str(error)})

    def _host_name(self, device: str) -> str:
        """The link's name on the host; empty for a device that interfaces are made on, or that is not known."""
        try:
            published = json.loads((self._state / "listed" / f"{quote(device, safe='')}.json").read_bytes())
            attributes = published.get("record", published)["attributes"]
            return "" if attributes["shared"]["bool"] else str(attributes["interface"]["string"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return ""


def _tagged_links(pod: KernelNetwork, damaged: DamagedRecord) -> Iterator[Link]:
    for link in pod.links.list():
        parts = link.alias.removeprefix(TAG).split("/")
        if link.alias.startswith(TAG) and (parts[0], parts[2:3]) == (damaged.claim_uid, [damaged.device]):
            yield link
