"""DHCP leases of claims on disk. Synchronous."""

import json
from pathlib import Path

from podwire.dradriver.addresses.keys import Key, claim_prefix
from podwire.dradriver.parameters.settings import decode_address
from podwire.durable.codecs import json_codec
from podwire.durable.records import NewerFormat, Records
from podwire.ipam.dhcp import lease_records
from podwire.ipam.dhcp.lease_records import LeaseRecord

_FORMAT = 2
"""1 was the same without an envelope, with "version" in it."""


class LeaseRecords(lease_records.LeaseRecords[Key]):
    def __init__(self, directory: Path | str) -> None:
        super().__init__(Records(directory, _CODEC, format=_FORMAT, migrate=_migrate))

    def of_claim(self, claim_uid: str) -> list[LeaseRecord[Key]]:
        return [record for record in self.all(f"{claim_prefix(claim_uid)}-") if record.key.claim.uid == claim_uid]


_CODEC = json_codec(LeaseRecord[Key], enc_hook=str, dec_hook=decode_address)


def _migrate(_format: int, data: bytes) -> LeaseRecord[Key]:
    version = json.loads(data).get("version")
    if isinstance(version, int) and version > 1:
        raise NewerFormat(version, 1)
    return _CODEC.decode(data)
