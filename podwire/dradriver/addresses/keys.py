"""The owner of an address: one allocated device of one claim. Values only."""

import hashlib
import uuid
from dataclasses import dataclass

from podwire.dradriver.claims.allocations import Allocation, ClaimRef

_RFC4361, _DUID_UUID = b"\xff", b"\x00\x04"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Pods come and go; a claim's device is the same for each of them, and so is its address."""

    claim: ClaimRef
    request: str
    device: str
    share_id: str = ""

    @property
    def id(self) -> str:
        """The same key has the same one; fits a file's name."""
        return f"{claim_prefix(self.claim.uid)}-{self._hash().hex()[:16]}"

    @property
    def client_id(self) -> bytes:
        """As RFC 4361 wants it: type 255, four bytes for the interface, and a DUID, which is the claim's UUID."""
        return _RFC4361 + self._hash()[:4] + _DUID_UUID + _uuid(self.claim.uid).bytes

    def _hash(self) -> bytes:
        return hashlib.sha256(f"{self.request}\0{self.device}\0{self.share_id}".encode()).digest()

    def __str__(self) -> str:
        return f"claim {self.claim.namespace}/{self.claim.name}, request {self.request}, device {self.device}"


def key_of(allocation: Allocation) -> Key:
    return Key(
        claim=allocation.claim, request=allocation.request, device=allocation.device.name, share_id=allocation.share_id
    )


def claim_prefix(uid: str) -> str:
    """With which the ids of all keys of a claim begin."""
    return str(_uuid(uid))


def _uuid(text: str) -> uuid.UUID:
    """Uids of Kubernetes are UUIDs; one that is not still has one of its own."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_OID, text)
