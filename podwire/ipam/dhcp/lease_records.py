"""DHCP leases on disk: one record each. Synchronous."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from podwire.durable.records import Records
from podwire.protocols.dhcp.leases import Lease


class LeaseOwner(Protocol):
    """The owner of a lease; it has a `str` for logs."""

    @property
    def id(self) -> str:
        """The same owner has the same one; fits a file's name."""

    @property
    def client_id(self) -> bytes: ...


K = TypeVar("K", bound=LeaseOwner)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLocation:
    """The location of an interface that is not on the host."""

    netns: str
    name: str
    inode: int = 0
    """Of the namespace: the path may lead to another one later. 0 is not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord(Generic[K]):
    """A lease, its owner, and where it can be renewed and released."""

    key: K
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


class LeaseRecords(Generic[K]):
    """Raises NewerFormat, LinuxError. A damaged lease is quarantined: the server knows it, and grants it again."""

    def __init__(self, records: Records[LeaseRecord[K]]) -> None:
        self._records = records

    def put(self, record: LeaseRecord[K]) -> None:
        self._records.put(record.key.id, record)

    def get(self, id_: str) -> LeaseRecord[K] | None:
        return self._records.get(id_)

    def remove(self, id_: str) -> None:
        self._records.remove(id_)

    def all(self, prefix: str = "") -> Iterator[LeaseRecord[K]]:
        for id_ in self._records.keys():  # noqa: SIM118 - not a dict
            record = self._records.get(id_) if id_.startswith(prefix) else None
            if record is not None:
                yield record
