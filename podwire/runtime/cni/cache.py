"""What was attached, and how: enough to detach it after a restart, without its configuration and its namespace."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from podwire.durable import append_log
from podwire.durable.files import remove_durably, sweep
from podwire.protocols.cni.config import NetworkList

_log = logging.getLogger("podwire.runtime.cni")

FORMAT = 1
_BETWEEN = "@"  # no id contains it
_ENDING = ".json"


class CachedAttachment(msgspec.Struct, frozen=True, kw_only=True):
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
    disable_check: bool = False
    leaving: bool = False
    """Whether it is to be detached, and a plugin has failed to."""
    format: int = FORMAT

    def network(self) -> NetworkList:
        return NetworkList(self.name, self.version, self.plugins)


Kept = Mapping[tuple[str, str], CachedAttachment | None]
"""By id and interface; None for what cannot be read."""


def valid_attachments(kept: Kept, network: str) -> list[tuple[str, str]]:
    """What GC of a network must spare. Of what cannot be read nobody knows the network, so it is spared everywhere."""
    return [key for key, each in kept.items() if each is None or (each.name == network and not each.leaving)]


class AttachmentCache:
    """One file per interface, durable when it is written first, which is before anything is attached."""

    def __init__(self, directory: Path, *, alone: bool = False) -> None:
        """`alone` if no other process writes there: then what a killed one left half written is removed."""
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if alone:
            sweep(directory)
        self._decoder = msgspec.json.Decoder(CachedAttachment)

    def _path(self, id_: str, ifname: str) -> Path:
        return self._directory / f"{id_}{_BETWEEN}{ifname}{_ENDING}"

    def write(self, attached: CachedAttachment) -> None:
        append_log.put(self._path(attached.id, attached.ifname), msgspec.json.encode(attached))

    def read(self, id_: str, ifname: str) -> CachedAttachment | None:
        """None when there is none; raises OSError or MsgspecError for one that cannot be read."""
        try:
            data = self._path(id_, ifname).read_bytes()
        except FileNotFoundError:
            return None
        return append_log.newest(data, self._decoder.decode, msgspec.MsgspecError)

    def remove(self, id_: str, ifname: str) -> None:
        remove_durably(self._path(id_, ifname))

    def kept(self) -> dict[tuple[str, str], CachedAttachment | None]:
        found: dict[tuple[str, str], CachedAttachment | None] = {}
        for name in self._names():
            id_, _, ifname = name.removesuffix(_ENDING).partition(_BETWEEN)
            try:
                attached = self.read(id_, ifname)
            except (OSError, msgspec.MsgspecError) as error:
                _log.error("an attachment cannot be read", extra={"id": id_, "reason": str(error)})
                found[id_, ifname] = None
            else:
                found |= {(id_, ifname): attached} if attached is not None else {}  # removed meanwhile
        return found

    def ids(self) -> set[str]:
        return {each.partition(_BETWEEN)[0] for each in self._names()}

    def _names(self) -> list[str]:
        names = [each.name for each in self._directory.iterdir()]
        return [each for each in names if each.endswith(_ENDING) and not each.startswith(".")]


def manual_cache(state: Path, network: str) -> AttachmentCache:
    """What was attached to one network from the command line, beside a runtime that keeps its own memory there."""
    return AttachmentCache(state / "by-hand" / network)
