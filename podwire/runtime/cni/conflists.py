"""The network configurations of a directory, by convention `/etc/cni/net.d`.

Files ending in .conflist, .conf or .json count, in the order of their names' bytes. An invalid file is logged and
skipped; if it was valid before, its last valid content stays in force, so that a bad edit takes no network down.

Every call looks at the directory first, which costs a few stat(2) calls, and reads again only what changed. So nothing
depends on events: a file that is moved in, a symlink that is switched, or a directory that is created again is seen by
the next call.
"""

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from podwire.linux.fs.regular_files import read_head
from podwire.protocols.cni.config import NetworkList, parse_list, parse_plugin, parse_single, with_plugins
from podwire.protocols.cni.errors import CniError
from podwire.protocols.cni.values import Object

_log = logging.getLogger("podwire.runtime.cni")

ENDINGS = (".conflist", ".conf", ".json")
MAX_BYTES = 1 << 20
"""The size limit of a configuration file; more is a mistake or an attack."""
TIMESTAMP_RESOLUTION = 0.1
"""Seconds after which a file's timestamps show whether it changed: a later write cannot have the same ones."""

Signature = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """One file as it was last read."""

    signature: Signature
    network: NetworkList | None
    """Its last valid content."""
    problem: str = ""


class Conflists:
    """All networks of one directory; used by any thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files: dict[str, Loaded] = {}
        self._problem = ""
        self._lock = Lock()

    def default(self) -> NetworkList | None:
        """Returns the first valid network."""
        networks = self.networks()
        return networks[0] if networks else None

    def networks(self) -> list[NetworkList]:
        """Returns all valid networks in order; of two with the same name the first."""
        with self._lock:
            self._refresh()
            networks: dict[str, NetworkList] = {}
            for loaded in self._files.values():
                if loaded.network is not None:
                    networks.setdefault(loaded.network.name, loaded.network)
            return list(networks.values())

    def problem(self) -> str:
        """Returns what is wrong with the directory or its files; networks may work nevertheless."""
        with self._lock:
            self._refresh()
            return "; ".join(filter(None, (self._problem, *(loaded.problem for loaded in self._files.values()))))

    def invalid(self) -> str:
        """Returns what is wrong with files; empty if all are valid."""
        with self._lock:
            self._refresh()
            return "; ".join(loaded.problem for loaded in self._files.values() if loaded.problem)

    def _refresh(self) -> None:
        try:
            names = sorted(os.fsencode(path.name) for path in self.directory.iterdir())
            self._problem = ""
        except FileNotFoundError:
            names, self._problem = [], f"directory {self.directory} does not exist"
        except OSError as error:  # what was read before stays in force
            self._problem = f"{self.directory}: {error.strerror}"
            return
        configs = [os.fsdecode(name) for name in names if name.endswith(tuple(map(os.fsencode, ENDINGS)))]
        self._files = {name: loaded for name in configs if (loaded := self._load(name)) is not None}

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
            reason = str(error).removeprefix(f"{name}: ")
            loaded = Loaded(
                signature, last, f"{path}: {reason}" + (" (its last valid content is used)" if last else "")
            )
        if loaded.problem and (earlier is None or earlier.problem != loaded.problem):
            _log.error("invalid network configuration", extra={"path": str(path), "error": loaded.problem})
        elif loaded.network is not None and (earlier is None or earlier.network != loaded.network):
            _log.info("loaded network configuration", extra={"path": str(path), "network": loaded.network.name})
        return loaded

    def _folder(self, earlier: Loaded | None) -> Path | None:
        """The directory with further plugins of a network (`loadOnlyInlinedPlugins: false`, CNI 1.1)."""
        if earlier is None or earlier.network is None or earlier.network.only_inlined:
            return None
        return self.directory / earlier.network.name


def _signature(path: Path, folder: Path | None) -> Signature | None:
    """Changes with the file; its last part says whether timestamps can be trusted yet. None if it is not a file."""
    if not path.is_file():
        return None
    paths = [path]
    if folder is not None and folder.is_dir():
        paths += [folder, *sorted(folder.glob("*.conf"))]
    states = [path.stat() for path in paths]
    youngest = max(state.st_ctime_ns for state in states)
    times = [(state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns) for state in states]
    return (*times, time.time_ns() - youngest > TIMESTAMP_RESOLUTION * 1e9)


def _read(path: Path) -> NetworkList:
    if path.suffix != ".conflist":
        return parse_single(_bytes(path), path.name)
    network = parse_list(_bytes(path), path.name)
    return with_plugins(network, () if network.only_inlined else _in_folder(path.parent / network.name))


def _in_folder(folder: Path) -> tuple[Object, ...]:
    paths = sorted(folder.glob("*.conf")) if folder.is_dir() else []
    return tuple(parse_plugin(_bytes(path), path.name) for path in paths)


def _bytes(path: Path) -> bytes:
    data = read_head(path, MAX_BYTES + 1, follow=True)  # a network's pod may write there: not a FIFO
    if len(data) > MAX_BYTES:
        raise OSError(f"larger than {MAX_BYTES} bytes")
    return data
