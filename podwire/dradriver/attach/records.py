"""Records of prepared devices: the allocation, the link's snapshot, and how far the device got into its pod.

STATE/records/POD/CLAIM~DEVICE~SHARE.json    one append log per device, created before anything is changed for it
STATE/attached/POD                           `device:inode` of the pod's namespace, while all its devices are in it
STATE/boot                                   the boot that the `attached` files belong to

Ownership of a device. Three places know of it, and each may be ahead of the next after a crash:

| claim (API server) | record | kernel | meaning |
|---|---|---|---|
| allocated | - | on the host | the scheduler reserved it |
| prepared | PREPARED | on the host | the record owns it: no other claim gets it |
| prepared | ATTACHING | host or pod, tagged alias | an attach or detach was interrupted |
| prepared | ATTACHED | in the pod, tagged alias | the pod has it |
| gone | any | anywhere | NodeUnprepareResources restores it and removes the record |

The record decides: a device without one is free, a tagged link without one is an orphan that `reconcile` removes.

Durability. The first line is fsynced before the kubelet gets its answer (`fsync_claim`), because the kubelet does not
ask again after it. Later lines only have to survive the process: nothing that is done to links survives a boot.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from msgspec import structs

from podwire.dradriver.addresses.keys import Key, key_of
from podwire.dradriver.claims.allocations import Allocation
from podwire.dradriver.parameters.settings import Interface, Route, decode_address
from podwire.durable.files import Durability, replace_file, sweep, write_durably
from podwire.durable.layout import Layout
from podwire.durable.records import Codec, NewerFormat, Records
from podwire.linux.net import borrow
from podwire.linux.net.borrow import LinkSnapshot
from podwire.linux.net.sysfs import Hardware

FORMAT = 2
"""1 was one line for the allocation and one line for each progress, without an envelope."""
PREPARED, ATTACHING, ATTACHED = "prepared", "attaching", "attached"
TAG = "podwire:claim:"
"""How the aliases of links begin that are claimed or made for a claim."""
OWN_NAME = re.compile(r"pw[cd][0-9a-f]{10}")
"""Names of links that are made on the host for a claim."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the device got."""

    stage: str = PREPARED
    netns: str = ""
    """The path of the pod's namespace, from the moment that something is changed there."""
    identity: str = ""
    """The namespace's identity, `device:inode`."""
    ifindex: int = 0
    """The link's index in the pod, while it is attached."""
    failure: str = ""
    """The step of the last attempt that failed, and the reason."""
    lost: tuple[str, ...] = ()
    """The settings that could not be restored."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The present terms of a DHCP lease."""

    addresses: tuple[Interface, ...] = ()
    routes: tuple[Route, ...] = ()
    mtu: int | None = None
    lapse: str = ""
    """Why there is nothing, when the lease is lost."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    allocation: Allocation
    boot: str
    """The boot in which the snapshot was taken."""
    mac: str
    """The MAC address in the pod."""
    addresses: tuple[Interface, ...] | None = None
    """From the pool, the DHCP server or the settings; None: the addresses that the link has on the host."""
    routes: tuple[Route, ...] = ()
    """From the DHCP server."""
    mtu: int | None = None
    """From the DHCP server; the settings take precedence."""
    lapse: str = ""
    """Why the interface does not have what a lease would grant; empty while it has."""
    snapshot: LinkSnapshot | None = None
    """The link on the host, of a device that moves as a whole."""
    progress: Progress = Progress()

    @property
    def stage(self) -> str:
        return self.progress.stage

    @property
    def netns(self) -> str:
        return self.progress.netns

    @property
    def ifindex(self) -> int:
        return self.progress.ifindex

    @property
    def failure(self) -> str:
        return self.progress.failure

    @property
    def lost(self) -> tuple[str, ...]:
        return self.progress.lost

    def at(self, **changes: Any) -> "Record":
        """Returns the record with another progress."""
        return structs.replace(self, progress=structs.replace(self.progress, **changes))

    def under(self, terms: Terms) -> "Record":
        """Returns the record with another lease. Without a lease the MTU stays: what was sent so far fitted."""
        mtu = self.mtu if terms.lapse else terms.mtu
        return structs.replace(self, addresses=terms.addresses, routes=terms.routes, mtu=mtu, lapse=terms.lapse)

    @property
    def key(self) -> Key:
        return key_of(self.allocation)

    @property
    def file_key(self) -> str:
        """The key of its file, `POD/CLAIM~DEVICE~SHARE`."""
        allocation = self.allocation
        parts = (allocation.claim.uid, allocation.device.name, allocation.share_id)
        return f"{_quote(allocation.pod.uid)}/{'~'.join(map(_quote, parts))}"

    @property
    def tag(self) -> str:
        """The owner tag: the alias of the link."""
        allocation = self.allocation
        device = f"{allocation.request}/{allocation.device.name}/{allocation.share_id}"
        return f"{TAG}{allocation.claim.uid}/{device}".rstrip("/")

    @property
    def digest(self) -> str:
        """Ten letters for the names of links."""
        return hashlib.sha256(f"{self.allocation.pod.uid}\0{self.tag}".encode()).hexdigest()[:10]

    @property
    def host_end(self) -> str:
        """The name of the end of a veth that stays on the host."""
        return f"pwc{self.digest}"

    @property
    def waiting_name(self) -> str:
        """The name, on the host, of an interface that is made before its pod exists."""
        return f"pwd{self.digest}"

    @property
    def queue_name(self) -> str:
        """The name of the ifb in the pod that shapes incoming traffic."""
        return f"pwi{self.digest}"


class DeviceRecords(Records[Record]):
    """The records of all prepared devices, by pod and claim. Blocks; raises NewerFormat, LinuxError."""

    def __init__(self, state: Path) -> None:
        super().__init__(
            state / "records",
            Codec(_encode, lambda body: _convert(json.loads(body))),
            format=FORMAT,
            migrate=_migrate,
            layout=Layout(depth=2),
            append=True,
            check=_check,
        )
        self._attached = state / "attached"
        self._fsynced: set[str] = set()
        """Keys of records that are on the disk for certain: not those of an instance that was killed."""

    def begin(self, boot: str) -> None:
        """Removes what killed writers left, and the `attached` files of another boot, whose inodes mean nothing now.

        Only while no other instance writes here.
        """
        for directory in (self._attached, self._attached.parent / "records"):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep(self._attached)
        self.sweep()
        path = self._attached.parent / "boot"
        try:
            known = path.read_bytes()
        except FileNotFoundError:
            known = b""
        if known != boot.encode():
            for pod_uid in self.pods_attached():
                self.clear_attached(pod_uid)
            write_durably(path, boot.encode())

    def of_pod(self, pod_uid: str) -> tuple[Record, ...]:
        """In the order of their claims and devices."""
        return self._values(self.keys(_quote(pod_uid)))

    def of_claim(self, claim_uid: str) -> tuple[Record, ...]:
        start = f"{_quote(claim_uid)}~"
        return self._values(key for key in self.keys() if key.partition("/")[2].startswith(start))

    def all(self) -> tuple[Record, ...]:
        return self._values(self.keys())

    def _values(self, keys: Iterable[str]) -> tuple[Record, ...]:
        return tuple(record for record in map(self.get, keys) if record is not None)

    def fsync_claim(self, claim_uid: str) -> None:
        """Makes the records of a claim survive a power loss."""
        for record in self.of_claim(claim_uid):
            if record.file_key not in self._fsynced:
                self.fsync(record.file_key)
                self._fsynced.add(record.file_key)

    def advance(self, record: Record) -> None:
        """Appends progress, for the instance that comes after a crash of this process."""
        self.put(record.file_key, record, Durability.PROCESS_DEATH)

    def remove(self, key: str, durability: Durability = Durability.POWER_LOSS) -> None:
        self._fsynced.discard(key)
        super().remove(key, durability)

    def damaged(self) -> dict[tuple[str, str, str, str], list[Path]]:
        """Quarantined files by pod, claim, device and share; the names of the files still say these."""
        damaged = {}
        for key, paths in self.quarantined().items():
            pod, _, name = key.partition("/")
            parts = [unquote(part) for part in name.split("~")]
            if len(parts) == 3:
                damaged[unquote(pod), parts[0], parts[1], parts[2]] = [Path(path) for path in paths]
        return damaged

    def attached_file(self, pod_uid: str) -> Path:
        return self._attached / _quote(pod_uid)

    def attached(self, pod_uid: str) -> str:
        """The identity of the namespace that all devices of a pod are in; empty when one is not."""
        try:
            return self.attached_file(pod_uid).read_text(encoding="ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return ""

    def set_attached(self, pod_uid: str, identity: str) -> None:
        replace_file(self.attached_file(pod_uid), f"{identity}\n".encode(), mode=0o644)

    def clear_attached(self, pod_uid: str) -> None:
        self.attached_file(pod_uid).unlink(missing_ok=True)

    def pods_attached(self) -> list[str]:
        return [unquote(path.name) for path in self._attached.iterdir() if not path.name.startswith(".")]


def _quote(part: str) -> str:
    return quote(part, safe="")


def _check(key: str, record: Record) -> None:
    if key != record.file_key:
        raise ValueError(f"is the record of {record.file_key}")


def _encode(record: Record) -> bytes:
    fields = msgspec.to_builtins(structs.replace(record, snapshot=None), enc_hook=str)
    if record.snapshot is not None:
        fields["snapshot"] = borrow.encode(record.snapshot)
    return msgspec.json.encode(fields)


def _convert(fields: dict[str, Any]) -> Record:
    """Raises ValueError, TypeError, KeyError, AttributeError."""
    snapshot = fields.pop("snapshot", None)
    try:
        record = msgspec.convert(fields, Record, dec_hook=decode_address)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    return record if snapshot is None else structs.replace(record, snapshot=borrow.decode(snapshot))


def _migrate(format_: int, data: bytes) -> Record:
    """Reads format 1: `{"version": 1, "record": {…}, "checksum": N}`, then lines with "progress" in place of "record".

    The newest progress that is whole counts; without one the device was prepared.
    """
    if format_:
        raise ValueError(f"format {format_} is not supported")
    first, *others = data.splitlines()
    fields = _version_1("record", first)
    fields["allocation"] = allocation = fields.pop("order")
    allocation["device"] = device = allocation.pop("offered")
    device["name"] = device.pop("device")
    device["hardware"] = tuple(Hardware(**device["hardware"]))
    record = _convert(fields)
    for line in reversed(others):
        try:
            progress = msgspec.convert(_version_1("progress", line), Progress)
        except (ValueError, TypeError, KeyError, AttributeError, msgspec.MsgspecError):
            continue  # its writer was killed while it wrote
        return structs.replace(record, progress=progress)
    return record


def _version_1(kind: str, line: bytes) -> dict[str, Any]:
    envelope = json.loads(line)
    if isinstance(envelope["version"], int) and envelope["version"] > 1:
        raise NewerFormat(envelope["version"], 1)
    if zlib.crc32(json.dumps(envelope[kind]).encode()) != envelope["checksum"]:
        raise ValueError("checksum mismatch")
    fields: dict[str, Any] = envelope[kind]
    return fields
