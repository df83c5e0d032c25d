"""Leases of DHCP on disk: one file each, whole after any crash. Synchronous."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from podwire.dradriver.addresses.keys import Key, claim_prefix
from podwire.durable.files import fsync_directory, remove_durably, write_durably
from podwire.protocols.dhcp.leases import Lease

log = logging.getLogger(__name__)

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an interface is when it is not on the host."""

    netns: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A lease, whose it is, and where it can be renewed and given back."""

    key: Key
    link: str
    """Its name on the host, while it is there."""
    mac: str
    hostname: str
    lease: Lease
    since: float
    """When it was granted, in seconds since the epoch: that means the same after a restart."""
    parent: str = ""
    """A link of the host on the same network, which is there when the interface is no more."""
    place: Place | None = None
    version: int = VERSION


class KeptLeases:
    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)

    def put(self, kept: Kept) -> None:
        if not self._directory.is_dir():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fsync_directory(str(self._directory.parent))
        write_durably(self._path(kept.key.id), msgspec.json.encode(kept, enc_hook=str))

    def get(self, id_: str) -> Kept | None:
        """None also when it cannot be read: the server knows what it gave, and gives it again."""
        path = self._path(id_)
        try:
            kept = msgspec.json.decode(path.read_bytes(), type=Kept, dec_hook=_read)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            log.warning("%s cannot be read and is as good as absent: %s", path, error)
            return None
        return kept if kept.version == VERSION else None

    def remove(self, id_: str) -> None:
        remove_durably(self._path(id_))

    def of(self, claim_uid: str) -> list[Kept]:
        return [each for each in self.all(f"{claim_prefix(claim_uid)}-*") if each.key.claim.uid == claim_uid]

    def all(self, pattern: str = "*") -> Iterator[Kept]:
        for path in sorted(self._directory.glob(f"{pattern}.json")):
            kept = self.get(path.stem)
            if kept is not None:
                yield kept

    def _path(self, id_: str) -> Path:
        return self._directory / f"{id_}.json"


def _read(kind: type, value: Any) -> Any:
    """Addresses and networks stand there as text."""
    return kind(value)
