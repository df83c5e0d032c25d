"""Limits of an image. Archives are untrusted: each limit stops an attack."""

from dataclasses import dataclass

from podwire.runtime.images.errors import OverLimit

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    shortest_id: int = 4
    """Digits of a prefix that can name an image by its id."""
    document: int = 4 * MIB
    """Bytes of an index, a manifest or a config."""
    documents: int = 2000
    """Indexes, manifests and configs of one archive."""
    layers: int = 127
    settings: int = 10_000
    """Entries of one list of a config: variables, arguments, volumes, ports, labels."""
    arguments: int = MIB
    """Bytes of the variables, the entrypoint and the command together: execve takes 2 MiB."""
    entries: int = 2_000_000
    """Files of one archive, with the directories that their paths imply."""
    data: int = 32 * GIB
    """Bytes of all files of one archive, with the holes of sparse ones."""
    names: int = 128 * MIB
    """Bytes of all paths of one layer, since those of directories are held in memory."""
    path: int = 4095
    name: int = 255
    depth: int = 256
    header: int = MIB
    """Bytes of one extended header of a tar."""
    xattrs: int = 64
    pieces: int = 65_536
    """Data regions of one sparse file."""
    ratio: int = 200
    """The largest compression ratio; checked only beyond `ratio_from`, because a file of zeros is not an attack."""
    ratio_from: int = 256 * MIB


class Budget:
    """The remainder of the limits of one archive."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._entries = limits.entries
        self._data = limits.data

    def take_entry(self, field: str) -> None:
        self._entries -= 1
        if self._entries < 0:
            raise OverLimit(field, f"the archive has more than {self._limits.entries} files")

    def take_data(self, field: str, size: int) -> None:
        self._data -= size
        if self._data < 0:
            raise OverLimit(field, f"the archive's files have more than {self._limits.data} bytes")
