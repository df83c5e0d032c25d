"""The owner of a lease of the CNI plugin dhcp: one interface of one container on one network. Values only."""

import hashlib
from dataclasses import dataclass

from podwire.protocols.dhcp.asking import SentOptions


def owner_id(network: str, container_id: str, ifname: str) -> str:
    """Returns the name of the owner's record: the three together may be longer than a file's name."""
    return hashlib.sha256(f"{network}\0{container_id}\0{ifname}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    network: str
    container_id: str
    ifname: str
    client_id: bytes
    wishes: bytes = b""
    provided: tuple[tuple[int, bytes], ...] = ()
    priority: int = 0

    @property
    def id(self) -> str:
        return owner_id(self.network, self.container_id, self.ifname)

    @property
    def sent(self) -> SentOptions:
        return SentOptions(wishes=self.wishes, provided=self.provided)

    def __str__(self) -> str:
        return f"network {self.network}, container {self.container_id}, interface {self.ifname}"
