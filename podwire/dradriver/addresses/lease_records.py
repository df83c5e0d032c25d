"""DHCP leases on disk: one record each. Synchronous."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from podwire.dradriver.addresses.keys import Key, claim_prefix
from podwire.dradriver.parameters.settings import decode_address
from podwire.durable.codecs import json_codec
from podwire.durable.records import NewerFormat, Records
from podwire.protocols.dhcp.leases import Lease

_FORMAT = 2
"""1 was the same without an envelope, with "version" in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLocation:
    """The location of an interface that is not on the host."""

    netns: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """A lease, its owner, and where it can be renewed and released."""

    key: Key
    link: str
    """The interface's name on the host, while it is there."""
    mac: str
    hostname: str
    lease: Lease
    since: float
    """When it was granted, in seconds since the epoch: that means the same after a restart."""
    parent: str = ""
    """A link of the host on the same network, which exists when the interface is gone."""
    place: PodLocation | None = None


class LeaseRecords:
    """Raises NewerFormat, LinuxError. A damaged lease is quarantined: the server knows it, and grants it again."""

    def __init__(self, directory: Path | str) -> None:
        self._records: Records[LeaseRecord] = Records(directory, _CODEC, format=_FORMAT, migrate=_migrate)

    def put(self, record: LeaseRecord) -> None:
        self._records.put(record.key.id, record)

    def get(self, id_: str) -> LeaseRecord | None:
        return self._records.get(id_)

    def remove(self, id_: str) -> None:
        self._records.remove(id_)

    def of_claim(self, claim_uid: str) -> list[LeaseRecord]:
        return [record for record in self.all(f"{claim_prefix(claim_uid)}-") if record.key.claim.uid == claim_uid]

    def all(self, prefix: str = "") -> Iterator[LeaseRecord]:
        for id_ in self._records.keys():  # noqa: SIM118 - not a dict
            record = self._records.get(id_) if id_.startswith(prefix) else None
            if record is not None:
                yield record


_CODEC = json_codec(LeaseRecord, enc_hook=str, dec_hook=decode_address)


def _migrate(_format: int, data: bytes) -> LeaseRecord:
    version = json.loads(data).get("version")
    if isinstance(version, int) and version > 1:
        raise NewerFormat(version, 1)
    return _CODEC.decode(data)
