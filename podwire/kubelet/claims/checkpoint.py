"""The checkpoint of claims: one record for each ResourceClaim that pods of this node use.

A record is on disk before a driver is asked to prepare its claim, and removed after every driver has unprepared it. So
no claim that a driver may have prepared is forgotten, whatever crashes when. A file that is damaged is quarantined: a
claim that a pod uses is prepared and recorded again; of the others `salvage` keeps what drivers need to unprepare them.
A file that was written by a newer podwire stops the kubelet (`NewerFormat`) and is not touched.
"""

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from podwire.durable.codecs import json_codec
from podwire.durable.files import Durability
from podwire.durable.layout import Layout
from podwire.durable.records import NewerFormat, Problem, Records
from podwire.kubelet import checkpoint_format0
from podwire.kubelet.claims.claim_info import ClaimInfo
from podwire.linux.errors import LinuxError
from podwire.objects.names import dns_subdomain
from podwire.tasks.uncancelled import thread_to_completion

log = logging.getLogger(__name__)

FORMAT = 2
_FIELD = rb'"%s":"([a-z0-9.-]{1,253})"'


class NotWritten(OSError):
    """The checkpoint cannot be written; the message says why."""


class ClaimCheckpoint:
    """The caller holds the claim's lock while it changes a record."""

    def __init__(self, directory: Path, report: Callable[[Problem], None] | None = None) -> None:
        self._files = Records(
            directory,
            json_codec(ClaimInfo),
            format=FORMAT,
            migrate=migrate,
            layout=Layout(suffix=""),
            check=_check,
            report=report,
            directory_mode=0o750,
        )
        self._claims: dict[str, ClaimInfo] = {}
        self._unsure: set[str] = set()
        """Claims whose last write failed: the disk may have either state."""
        self.damaged: dict[str, ClaimInfo] = {}
        """Claims salvaged from quarantined files, until drivers have unprepared them."""

    def load(self) -> None:
        """Read everything. Blocks. Raises NewerFormat. A record that cannot be read is as good as a damaged one."""
        self._files.sweep()
        self._claims = self._files.load()
        for key in set(self._files.keys()) - self._claims.keys():
            self.damaged[key] = salvage(key, b"")
        for key, paths in self._files.quarantined().items():
            try:
                data = Path(paths[0]).read_bytes()
            except OSError:
                data = b""
            self.damaged[key] = salvage(key, data)

    @property
    def claims(self) -> Mapping[str, ClaimInfo]:
        return self._claims

    def of_pod(self, uid: str) -> list[ClaimInfo]:
        return [claim for claim in self._claims.values() if claim.used_by(uid)]

    async def note(self, claim: ClaimInfo) -> None:
        """Write a record that says less than the one before: a pod uses the claim no more, or a driver has unprepared
        it. A full disk must not prevent that: the next kubelet repeats what the earlier record says."""
        try:
            await self.put(claim)
        except NotWritten as error:
            log.warning("cannot record the release of a claim", extra={"claim": claim.name, "error": str(error)})
            self._claims[claim.uid] = claim

    async def put(self, claim: ClaimInfo, durability: Durability = Durability.POWER_LOSS) -> None:
        """Write a record unless it is unchanged. Raises NotWritten.

        PROCESS_DEATH is enough for what ends with the machine, such as devices that a driver has prepared.
        """
        before = self._claims.get(claim.uid)
        if before == claim and claim.uid not in self._unsure:
            return
        self._claims[claim.uid] = claim
        self._unsure.add(claim.uid)
        try:
            await thread_to_completion(self._files.put, claim.uid, claim, durability)
        except LinuxError as error:
            del self._claims[claim.uid]
            if before is not None:
                self._claims[claim.uid] = before
            raise NotWritten(str(error)) from error
        self._unsure.discard(claim.uid)

    async def remove(self, uid: str) -> None:
        """Raises NotWritten."""
        try:
            await thread_to_completion(self._files.remove, uid)
        except LinuxError as error:
            raise NotWritten(str(error)) from error
        self._claims.pop(uid, None)
        self._unsure.discard(uid)

    async def discard_damaged(self, uid: str) -> None:
        """Raises NotWritten."""
        try:
            await thread_to_completion(self._files.discard_quarantined, uid)
        except LinuxError as error:
            raise NotWritten(str(error)) from error
        self.damaged.pop(uid, None)


class _Version(msgspec.Struct):
    version: int


def migrate(format_: int, data: bytes) -> ClaimInfo:
    """Read format 0, whose JSON had a version of its own: always 1. Raises ValueError, NewerFormat."""
    if format_ != 0:
        raise ValueError(f"format {format_} is not supported")
    version = checkpoint_format0.decode(data, _Version).version
    if version != 1:
        raise NewerFormat(version, FORMAT)
    return checkpoint_format0.decode(data, ClaimInfo)


def _check(key: str, claim: ClaimInfo) -> None:
    if claim.uid != key:
        raise ValueError(f"is the record of claim {claim.uid}")


def salvage(uid: str, data: bytes) -> ClaimInfo:
    """Read what a driver needs to unprepare a claim from a damaged file; without drivers if they are unknown. Pure.

    An additional driver does no harm: unprepare of an unknown claim succeeds.
    """
    claim = _whole(uid, data) or ClaimInfo(
        uid=uid, namespace=_word(b"namespace", data), name=_word(b"name", data), allocation="", drivers={}
    )
    return msgspec.structs.replace(claim, drivers=dict.fromkeys(claim.drivers), boots={}, users=(), leaving=True)


class _Envelope(msgspec.Struct):
    record: ClaimInfo


def _whole(uid: str, data: bytes) -> ClaimInfo | None:
    """A record whose checksum is wrong but whose names are plausible."""
    try:
        if data.startswith(b'{"format"'):
            claim = msgspec.json.decode(data, type=_Envelope).record
        else:
            claim = msgspec.json.decode(data.partition(b"\n")[2], type=ClaimInfo)
    except msgspec.DecodeError:
        return None
    names = (uid, claim.namespace, claim.name, *claim.drivers)
    return claim if claim.uid == uid and not any(map(dns_subdomain, names)) else None


def _word(field: bytes, data: bytes) -> str:
    match = re.search(_FIELD % field, data)
    return match[1].decode() if match else ""
