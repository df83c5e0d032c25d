"""The owner of a lease of the CNI plugin dhcp: one interface of one container on one network. Values only."""

from dataclasses import dataclass

from podwire.ipam.dhcp.calls import owner_id
from podwire.protocols.dhcp.asking import SentOptions


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
