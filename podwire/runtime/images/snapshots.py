"""Unpacked layers by chain id, and the writable layers of containers."""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from podwire.runtime.images.errors import BadReference
from podwire.runtime.images.records import DamagedFile, decode
from podwire.runtime.images.staging import StoreDirectory
from podwire.runtime.images.unpack import DiskUsage

_CONTAINER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)


class _Facts(msgspec.Struct):
    chain: str
    bytes: int
    inodes: int


class Hold(msgspec.Struct, frozen=True):
    """The image of a container, and the runtime that owns it, where several share a store."""

    image: str
    layers: tuple[str, ...]
    """Of the image, and of those in `volumes`."""
    owner: str = ""
    volumes: tuple[str, ...] = ()
    """Images that the container mounts as volumes."""


@dataclass(frozen=True, slots=True)
class Writable:
    """`upperdir` and `workdir` of a container's overlayfs."""

    upper: Path
    work: Path


class Snapshots:
    """`snapshots/CHAIN/fs` is a layer; `layer.json` beside it is written when it is complete."""

    def __init__(self, store: StoreDirectory) -> None:
        self._store = store
        self._home = store.root / "snapshots"
        self._facts: dict[str, DiskUsage] = {}

    def path(self, chain: str) -> Path:
        return self._home / chain.removeprefix("sha256:") / "fs"

    def usage(self, chain: str) -> DiskUsage:
        """Returns the disk usage of a layer. Raises DamagedFile for one that does not exist."""
        if not self.path(chain).is_dir():
            raise DamagedFile(self.path(chain), "is missing")
        if chain not in self._facts:
            facts = decode(self.path(chain).with_name("layer.json"), _Facts)
            if facts.chain != chain:
                raise DamagedFile(self.path(chain), "is another layer")
            self._facts[chain] = DiskUsage(facts.bytes, facts.inodes)
        return self._facts[chain]

    def has(self, chain: str) -> bool:
        try:
            self.usage(chain)
        except DamagedFile:
            return False
        return True

    def chains(self) -> list[str]:
        return [f"sha256:{path.name}" for path in self._home.iterdir()]

    def write_facts(self, staged: Path, chain: str, usage: DiskUsage) -> None:
        facts = _Facts(chain=chain, bytes=usage.bytes, inodes=usage.inodes)
        (staged / "layer.json").write_bytes(msgspec.json.encode(facts))

    def put(self, chain: str, staged: Path, stage: Path) -> None:
        """Puts a layer in place that is synced already, and discards an incomplete one."""
        place = self.path(chain).parent
        self._store.discard(place, stage)
        staged.rename(place)
        self._facts.pop(chain, None)

    def drop(self, chain: str, stage: Path) -> None:
        self._store.discard(self.path(chain).parent, stage)
        self._facts.pop(chain, None)


class Containers:
    """`containers/ID`: upper, work, and which image they lie on.

    Not fsynced: after a power loss no container runs, and its writable layer is not needed any more.
    """

    def __init__(self, store: StoreDirectory) -> None:
        self._store = store
        self._home = store.root / "containers"

    def prepare(self, container_id: str, hold: Hold, model: Path, stage: Path) -> Writable:
        """Creates the directories, unless they exist. The upper one is shown as `/`, so it gets the mode of `model`."""
        home = self._path(container_id)
        if not home.exists():
            made = stage / "container"
            (made / "upper").mkdir(parents=True)
            (made / "work").mkdir(mode=0o700)
            like = model.stat()
            os.chown(made / "upper", like.st_uid, like.st_gid)
            (made / "upper").chmod(stat.S_IMODE(like.st_mode))
            (made / "image.json").write_bytes(msgspec.json.encode(hold))
            made.rename(home)
        return Writable(home / "upper", home / "work")

    def release(self, container_id: str, stage: Path) -> None:
        self._store.discard(self._path(container_id), stage)

    def holds(self) -> Iterator[tuple[str, Hold | DamagedFile]]:
        """Yields the id of each container and its hold."""
        for home in sorted(self._home.iterdir()):
            try:
                yield home.name, decode(home / "image.json", Hold)
            except DamagedFile as error:
                yield home.name, error

    def _path(self, container_id: str) -> Path:
        if not _CONTAINER_ID.fullmatch(container_id):
            raise BadReference(container_id, "is not a container id")
        return self._home / container_id
