"""The cache of attachments, as libcni keeps one: what DEL, CHECK and GC need after a restart of the runtime.

DEL must work without the network's configuration (the operator may have changed it) and without the pod's namespace (it
may be gone). So the configuration of ADD's time and the last result are kept, one file per pod interface,
`ID@IFNAME.json`: created durably before the first plugin is called, and written again with the result after the last.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from podwire.durable import append_log
from podwire.durable.codecs import json_codec
from podwire.durable.files import Durability
from podwire.durable.records import NewerFormat, Problem, Records
from podwire.protocols.cni.config import NetworkList

_log = logging.getLogger("podwire.runtime.cni")

FORMAT = 2
"""1 had no envelope and no checksum."""
BY_HAND = "by-hand"
"""The directory of attachments that `podwire cni add` made, below the state of CNI."""
_SEPARATOR = "@"  # not allowed in the ids of CNI


class CachedAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """One interface of one pod in one network."""

    id: str
    ifname: str
    netns: str
    netns_inode: int
    args: str
    capabilities: dict[str, Any]
    name: str
    """The network's name."""
    version: str
    plugins: tuple[dict[str, Any], ...]
    """Their configurations when ADD was called."""
    result: dict[str, Any] | None = None
    """The result of the last plugin; None until all have answered."""
    disable_check: bool = False
    leaving: bool = False
    """A plugin failed DEL: the reconciler retries it, and GC does not spare it."""

    def network(self) -> NetworkList:
        return NetworkList(self.name, self.version, self.plugins)


class _Format1(CachedAttachment, frozen=True, kw_only=True):
    format: int = 1


Attachments = Mapping[tuple[str, str], CachedAttachment | None]
"""By id and interface; None for a damaged file."""


def valid_attachments(attachments: Attachments, network: str) -> list[tuple[str, str]]:
    """Returns what GC of a network must spare. A damaged file may be of any network, so it is spared in all."""
    return [
        key
        for key, attachment in attachments.items()
        if attachment is None or (attachment.name == network and not attachment.leaving)
    ]


class AttachmentCache:
    """One file per interface. Its creation survives a power loss; the runtime writes it before it calls a plugin."""

    def __init__(self, directory: Path, *, sweep: bool = False) -> None:
        """`sweep` if no other process writes there: then temporary files of a killed runtime are removed."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._records = Records(
            directory,
            json_codec(CachedAttachment),
            format=FORMAT,
            migrate=_migrate,
            append=True,
            check=_check_key,
            report=_report,
        )
        if sweep:
            self._records.sweep()

    def write(self, attachment: CachedAttachment) -> None:
        self._records.put(_key(attachment.id, attachment.ifname), attachment, Durability.CREATION)

    def get(self, id_: str, ifname: str) -> CachedAttachment | None:
        """Returns None when there is none, or a damaged one (`is_damaged`). Raises LinuxError."""
        return self._records.get(_key(id_, ifname))

    def is_damaged(self, id_: str, ifname: str) -> bool:
        """Whether the interface was attached, but its file could not be decoded."""
        return _key(id_, ifname) in self._records.quarantined()

    def remove(self, id_: str, ifname: str) -> None:
        """Removes the file of an interface, durably, and damaged ones of the same interface."""
        self._records.remove(_key(id_, ifname))
        self._records.discard_quarantined(_key(id_, ifname))

    def load(self) -> dict[tuple[str, str], CachedAttachment | None]:
        """Returns all attachments; None for damaged files."""
        attachments: dict[tuple[str, str], CachedAttachment | None] = {
            (attachment.id, attachment.ifname): attachment for attachment in self._records.load().values()
        }
        for key in (*self._records.keys(), *self._records.quarantined()):
            id_, _, ifname = key.partition(_SEPARATOR)
            attachments.setdefault((id_, ifname), None)
        return attachments

    def ids(self) -> set[str]:
        """Returns the ids of all pods that have a file, damaged or not."""
        return {key.partition(_SEPARATOR)[0] for key in (*self._records.keys(), *self._records.quarantined())}


def manual_cache(state: Path, network: str) -> AttachmentCache:
    """The cache of what `podwire cni add` attached to one network, beside a runtime's own cache in the same state."""
    return AttachmentCache(state / BY_HAND / network)


def _key(id_: str, ifname: str) -> str:
    return f"{id_}{_SEPARATOR}{ifname}"


def _check_key(key: str, attachment: CachedAttachment) -> None:
    if key != _key(attachment.id, attachment.ifname):
        raise ValueError(f"it is the attachment of {attachment.id} {attachment.ifname}")


def _migrate(_format: int, data: bytes) -> CachedAttachment:
    """Reads format 1: an append log of plain JSON."""
    try:
        old = append_log.newest(data, msgspec.json.Decoder(_Format1).decode, msgspec.MsgspecError)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    if old.format > 1:
        raise NewerFormat(old.format, FORMAT)
    fields = {name: getattr(old, name) for name in CachedAttachment.__struct_fields__}
    return CachedAttachment(**fields)


def _report(problem: Problem) -> None:
    id_, _, ifname = problem.key.partition(_SEPARATOR)
    fields = {"id": id_, "ifname": ifname, "path": problem.path, "error": problem.error}
    _log.error("cannot read cached CNI attachment", extra=fields)
