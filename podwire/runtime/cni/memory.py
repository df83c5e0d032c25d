"""What was attached, and how: enough to detach it after a restart, without its configuration and its namespace."""

import logging
from pathlib import Path
from typing import Any

import msgspec

from podwire.linux.files import remove_durably, sweep, write_durably
from podwire.protocols.cni.config import NetworkList

_log = logging.getLogger("podwire.runtime.cni")

FORMAT = 1
_BETWEEN = "@"  # no id contains it
_ENDING = ".json"


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """One interface of one pod in one network. Written before the first plugin is asked, and after the last one."""

    id: str
    ifname: str
    netns: str
    netns_inode: int
    args: str
    capabilities: dict[str, Any]
    name: str
    version: str
    plugins: tuple[dict[str, Any], ...]
    """As they were when it was attached."""
    result: dict[str, Any] | None = None
    """The last plugin's; None until all have answered."""
    format: int = FORMAT

    def network(self) -> NetworkList:
        return NetworkList(self.name, self.version, self.plugins)


class Memory:
    """One file per interface, replaced at once and durable when written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(directory)
        self._decoder = msgspec.json.Decoder(Attached)

    def _path(self, id_: str, ifname: str) -> Path:
        return self._directory / f"{id_}{_BETWEEN}{ifname}{_ENDING}"

    def write(self, attached: Attached) -> None:
        write_durably(self._path(attached.id, attached.ifname), msgspec.json.encode(attached))

    def read(self, id_: str, ifname: str) -> Attached | None:
        """None when there is none; raises OSError or MsgspecError for one that cannot be read."""
        try:
            return self._decoder.decode(self._path(id_, ifname).read_bytes())
        except FileNotFoundError:
            return None

    def remove(self, id_: str, ifname: str) -> None:
        remove_durably(self._path(id_, ifname))

    def ids(self) -> set[str]:
        names = [each.name for each in self._directory.iterdir()]
        return {each.partition(_BETWEEN)[0] for each in names if each.endswith(_ENDING) and not each.startswith(".")}
