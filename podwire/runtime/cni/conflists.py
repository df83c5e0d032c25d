"""The networks that a directory of configurations describes, `/etc/cni/net.d` by custom.

Files ending in .conflist, .conf or .json count, in the order of their names' bytes. One that is broken is named and
skipped; one that was good before goes on as it was until it is whole again, so that a bad edit takes no network down.

Every question looks at the directory first, which costs a few `stat` calls, and reads again only what changed. So
nothing depends on events: a file that is moved in, a link that is switched, a directory that is made anew are seen at
the next question, with no watcher that could miss them.
"""

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from podwire.protocols.cni.config import NetworkList, parse_list, parse_plugin, parse_single, with_plugins
from podwire.protocols.cni.errors import CniError
from podwire.protocols.cni.values import Object

_log = logging.getLogger("podwire.runtime.cni")

ENDINGS = (".conflist", ".conf", ".json")
LARGEST = 1 << 20
"""Bytes of a configuration file; more is a mistake or an attack."""
SETTLED = 0.1
"""Seconds after which a file's times tell whether it changed: a later write cannot have the same ones."""

Signature = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """One file as it was read last."""

    signature: Signature
    network: NetworkList | None
    """The last good one."""
    trouble: str = ""


class Conflists:
    """All networks of one directory; used by any thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files: dict[str, Loaded] = {}
        self._trouble = ""
        self._lock = Lock()

    def default(self) -> NetworkList | None:
        """The first good one."""
        networks = self.networks()
        return networks[0] if networks else None

    def networks(self) -> list[NetworkList]:
        """All good ones in order; of two with the same name the first."""
        with self._lock:
            self._refresh()
            found: dict[str, NetworkList] = {}
            for each in self._files.values():
                if each.network is not None:
                    found.setdefault(each.network.name, each.network)
            return list(found.values())

    def trouble(self) -> str:
        """What is wrong with files or directory; networks may work nevertheless."""
        with self._lock:
            self._refresh()
            return "; ".join(filter(None, (self._trouble, *(each.trouble for each in self._files.values()))))

    def _refresh(self) -> None:
        try:
            names = sorted(os.fsencode(each.name) for each in self.directory.iterdir())
            self._trouble = ""
        except FileNotFoundError:
            names, self._trouble = [], f"there is no directory {self.directory}"
        except OSError as error:  # what was read before stays in force
            self._trouble = f"{self.directory}: {error.strerror}"
            return
        wanted = [os.fsdecode(each) for each in names if each.endswith(tuple(map(os.fsencode, ENDINGS)))]
        self._files = {each: loaded for each in wanted if (loaded := self._load(each)) is not None}

    def _load(self, name: str) -> Loaded | None:
        path = self.directory / name
        earlier = self._files.get(name)
        try:
            signature = _signature(path, self._folder(earlier))
        except OSError:
            return None  # removed meanwhile
        if signature is None:
            return None
        if earlier is not None and earlier.signature == signature and signature[-1]:
            return earlier
        try:
            loaded = Loaded(signature, _read(path))
        except (CniError, OSError) as error:
            last = earlier.network if earlier else None
            loaded = Loaded(signature, last, f"{path}: {error}" + (" (its last good state is used)" if last else ""))
        _tell(path, earlier, loaded)
        return loaded

    def _folder(self, earlier: Loaded | None) -> Path | None:
        """Where more plugins of a network may lie."""
        if earlier is None or earlier.network is None or earlier.network.only_inlined:
            return None
        return self.directory / earlier.network.name


def _tell(path: Path, earlier: Loaded | None, loaded: Loaded) -> None:
    if loaded.trouble and (earlier is None or earlier.trouble != loaded.trouble):
        _log.error("a network configuration is broken", extra={"file": str(path), "reason": loaded.trouble})
    elif loaded.network is not None and (earlier is None or earlier.network != loaded.network):
        _log.info("a network configuration is in force", extra={"file": str(path), "network": loaded.network.name})


def _signature(path: Path, folder: Path | None) -> Signature | None:
    """What changes when the file does; its last part says whether it can be trusted yet. None for what is no file."""
    if not path.is_file():
        return None
    paths = [path]
    if folder is not None and folder.is_dir():
        paths += [folder, *sorted(folder.glob("*.conf"))]
    told = [each.stat() for each in paths]
    youngest = max(each.st_ctime_ns for each in told)
    times = [(each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns) for each in told]
    return (*times, time.time_ns() - youngest > SETTLED * 1e9)


def _read(path: Path) -> NetworkList:
    if path.suffix != ".conflist":
        return parse_single(_bytes(path), path.name)
    network = parse_list(_bytes(path), path.name)
    return with_plugins(network, () if network.only_inlined else _in_folder(path.parent / network.name))


def _in_folder(folder: Path) -> tuple[Object, ...]:
    found = sorted(folder.glob("*.conf")) if folder.is_dir() else []
    return tuple(parse_plugin(_bytes(each), each.name) for each in found)


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise OSError(f"larger than {LARGEST} bytes")
    return data
