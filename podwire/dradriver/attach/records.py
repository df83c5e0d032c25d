"""What was promised to a pod, and what the host was like before, in files that survive any crash.

STATE/records/POD/CLAIM~DEVICE~SHARE.json    one for each device, there before anything is made or changed for it
STATE/attached/POD                           the pod's namespace as `device:inode`, while all its devices are in it
STATE/boot                                   the boot of the machine that all this is true for

The first line of a record is what was promised, and is there before anything is done; it is on the disk before a
kubelet hears of it. The others say how far it got; the last one counts. They outlive the process that writes them, and
need no more: nothing that is done to links outlives a boot. To add a line costs a fraction of putting a new file in
place.
"""

import hashlib
import json
import logging
import re
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from podwire.dradriver.addresses.keys import Key, key_of
from podwire.dradriver.attach.coding import decoded, encoded
from podwire.dradriver.attach.snapshots import Snapshot
from podwire.dradriver.claims.allocations import Order, Refused
from podwire.dradriver.parameters.settings import Interface, Route
from podwire.durable import append_log
from podwire.durable.files import remove_durably, replace_file, sweep, write_durably

_log = logging.getLogger("podwire.dradriver")

VERSION = 1
PREPARED, ATTACHING, ATTACHED = "prepared", "attaching", "attached"
TAG = "podwire:claim:"
"""How the aliases of links begin that are claimed or made for a claim."""
OWN_NAME = re.compile(r"pw[cd][0-9a-f]{10}")
"""Of links that are made for a claim on the host."""
_LONG = 1 << 16
"""Bytes of a record that is written anew."""
_BROKEN = (ValueError, TypeError, KeyError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far it got."""

    stage: str = PREPARED
    netns: str = ""
    """The path of the pod's namespace, from the moment that something is done there."""
    identity: str = ""
    """And which one it was, as `device:inode`."""
    ifindex: int = 0
    """In the pod, while it is attached."""
    failure: str = ""
    """The step of the last attempt that failed, and why."""
    lost: tuple[str, ...] = ()
    """What could not be given back as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a DHCP server gives at this moment."""

    addresses: tuple[Interface, ...] = ()
    routes: tuple[Route, ...] = ()
    mtu: int | None = None
    lapse: str = ""
    """Why there is nothing, when its lease is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    order: Order
    boot: str
    """The boot of the machine that all this is true for."""
    mac: str
    """What it has in the pod."""
    addresses: tuple[Interface, ...] | None = None
    """What its pool or its DHCP server gave, or the settings say; None: what the device has on the host."""
    routes: tuple[Route, ...] = ()
    """Those that a DHCP server gave."""
    mtu: int | None = None
    """What a DHCP server gave; that of the settings counts more."""
    lapse: str = ""
    """Why the interface has not what a lease would give it; empty while it has."""
    snapshot: Snapshot | None = None
    """Of a device that moves as a whole."""
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
        """The same, further on or back."""
        return replace(self, progress=replace(self.progress, **changes))

    def under(self, terms: Terms) -> "Record":
        """The same with another lease. Without any, the MTU stays: what was sent so far fitted."""
        mtu = self.mtu if terms.lapse else terms.mtu
        return replace(self, addresses=terms.addresses, routes=terms.routes, mtu=mtu, lapse=terms.lapse)

    @property
    def key(self) -> Key:
        return key_of(self.order)

    @property
    def tag(self) -> str:
        order = self.order
        return f"{TAG}{order.claim.uid}/{order.request}/{order.offered.device}/{order.share_id}".rstrip("/")

    @property
    def digest(self) -> str:
        """Ten letters for the names of links."""
        return hashlib.sha256(f"{self.order.pod.uid}\0{self.tag}".encode()).hexdigest()[:10]

    @property
    def host_end(self) -> str:
        """Of a veth: the end that stays on the host."""
        return f"pwc{self.digest}"

    @property
    def waiting_name(self) -> str:
        """Of an interface that is made before there is a pod, on the host."""
        return f"pwd{self.digest}"

    @property
    def queue_name(self) -> str:
        """Of the ifb in the pod that holds back what comes in."""
        return f"pwi{self.digest}"


class Records:
    def __init__(self, directory: Path) -> None:
        self._records, self._attached = directory / "records", directory / "attached"
        self._lock = threading.Lock()
        """A pod's directory goes with its last record, and comes with its first."""
        self._seen: dict[Path, tuple[tuple[int, int, int], Record]] = {}
        self._unsettled: set[Path] = set()
        """Promises that are written, and maybe not on the disk."""
        for each in (self._records, self._attached):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
            sweep(each)
        for each in self._records.iterdir():
            if each.is_dir():
                sweep(each)

    def begin(self, boot: str) -> None:
        """After a boot no pod has a device, and a number of a namespace may be another's."""
        path = self._attached.parent / "boot"
        try:
            known = path.read_text(encoding="ascii")
        except FileNotFoundError:
            known = ""
        if known != boot:
            for each in self.pods_attached():
                self.clear_attached(each)
            write_durably(path, boot.encode())

    def of_pod(self, pod_uid: str) -> tuple[Record, ...]:
        """In the order of their claims and devices. Raises Refused for one of a newer version."""
        return tuple(self._read(_files(self._records / _name(pod_uid))))

    def of_claim(self, claim_uid: str) -> tuple[Record, ...]:
        return tuple(self._read(each for each in self._paths() if each.name.startswith(f"{_name(claim_uid)}~")))

    def all(self) -> tuple[Record, ...]:
        return tuple(self._read(self._paths()))

    def _paths(self) -> Iterator[Path]:
        for each in sorted(self._records.iterdir()):
            yield from _files(each)

    def _read(self, paths: Iterable[Path]) -> Iterable[Record]:
        for path in paths:
            try:
                yield self._remembered(path)
            except FileNotFoundError:
                continue
            except _BROKEN as error:
                aside = path.with_suffix(".damaged")
                path.rename(aside)
                told = {"file": str(aside), "why": str(error) or type(error).__name__}
                _log.error("a record is damaged and put aside: its device stays as it is", extra=told)

    def _remembered(self, path: Path) -> Record:
        """Parsed once for each time that somebody wrote it, another process too."""
        written = _written(path)
        seen = self._seen.get(path)
        if seen is None or seen[0] != written:
            self._seen[path] = seen = (written, _parsed(path.read_bytes()))
        return seen[1]

    def promise(self, record: Record, *, durably: bool = True) -> None:
        """On the disk when this returns, or when it is settled."""
        path = self._path(record)
        with self._lock:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            (write_durably if durably else replace_file)(path, _whole(record))
        self._seen[path] = (_written(path), record)
        if not durably:
            self._unsettled.add(path)

    def settle(self, claim_uid: str) -> None:
        """What was promised to a claim outlives a loss of power from now on."""
        for path in [self._path(each) for each in self.of_claim(claim_uid)]:
            if path in self._unsettled:
                append_log.fsync(path)
                self._unsettled.discard(path)

    def note(self, record: Record) -> None:
        """How far it got, for whoever comes after a crash of this process."""
        path = self._path(record)
        if path.stat().st_size > _LONG:
            write_durably(path, _whole(record))
        else:
            with path.open("ab", buffering=0) as file:
                file.write(_line("progress", record.progress))
        self._seen[path] = (_written(path), record)

    def remove(self, record: Record) -> None:
        path = self._path(record)
        with self._lock:
            remove_durably(path)
            self._seen.pop(path, None)
            self._unsettled.discard(path)
            with suppress(OSError):  # another claim's record is there
                path.parent.rmdir()

    def _path(self, record: Record) -> Path:
        order = record.order
        parts = (order.claim.uid, order.offered.device, order.share_id)
        return self._records / _name(order.pod.uid) / f"{'~'.join(map(_name, parts))}.json"

    def attached_file(self, pod_uid: str) -> Path:
        return self._attached / _name(pod_uid)

    def attached(self, pod_uid: str) -> str:
        """The namespace that all devices of a pod are in; empty when one is not."""
        try:
            return self.attached_file(pod_uid).read_text(encoding="ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return ""

    def set_attached(self, pod_uid: str, identity: str) -> None:
        replace_file(self.attached_file(pod_uid), f"{identity}\n".encode(), mode=0o644)

    def clear_attached(self, pod_uid: str) -> None:
        self.attached_file(pod_uid).unlink(missing_ok=True)

    def pods_attached(self) -> list[str]:
        return [unquote(each.name) for each in self._attached.iterdir() if not each.name.startswith(".")]


def _files(directory: Path) -> list[Path]:
    """Records of one pod, if there are any."""
    try:
        return sorted(each for each in directory.iterdir() if each.suffix == ".json")
    except (FileNotFoundError, NotADirectoryError):
        return []


def _written(path: Path) -> tuple[int, int, int]:
    """Another one after each time that somebody wrote it."""
    now = path.stat()
    return now.st_ino, now.st_size, now.st_mtime_ns


def _name(part: str) -> str:
    """Fit for a file's name, whatever it is made of."""
    return quote(part, safe="")


def _whole(record: Record) -> bytes:
    return _line("record", replace(record, progress=Progress())) + _line("progress", record.progress)


def _line(kind: str, value: Record | Progress) -> bytes:
    data = json.dumps(encoded(value))
    return f'{{"version": {VERSION}, "{kind}": {data}, "checksum": {_checksum(data)}}}\n'.encode()


def _parsed(text: bytes) -> Record:
    first, *others = text.splitlines()
    record = decoded(Record, _data("record", first))
    for each in reversed(others):
        try:
            return replace(record, progress=decoded(Progress, _data("progress", each)))
        except _BROKEN:
            continue  # its writer was killed while it wrote
    return record


def _data(kind: str, line: bytes) -> Any:
    read = json.loads(line)
    if isinstance(read["version"], int) and read["version"] > VERSION:
        raise Refused("", f"a record is of version {read['version']}, and this driver knows {VERSION}: it is older")
    if _checksum(json.dumps(read[kind])) != read["checksum"]:
        raise ValueError("the checksum is another")
    return read[kind]


def _checksum(data: str) -> int:
    return zlib.crc32(data.encode())
