"""Ids of the host for pods with a user namespace of their own (`hostUsers: false`): 65,536 for each, never shared.

The ids of a pod are in the file `userns` of its directory, in the format of upstream's kubelet, and are free again when
the directory is removed. The file is on disk before a sandbox uses the ids.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from podwire.durable.files import write_durably
from podwire.durable.records import Problem
from podwire.kubelet.config.environment import ConfigError
from podwire.kubelet.config.security import POD_IDS
from podwire.linux.errors import NoSuchPath, WrongKind
from podwire.linux.fs.regular_files import read_head
from podwire.linux.fs.trees import remove_path

FILE = "userns"
LONGEST = 4096
"""Bytes of such a file that are read."""
BLOCKS = 2**32 // POD_IDS
"""Block 0 belongs to the host, and the last one has the id that means "no change"."""


class _Mapping(msgspec.Struct, rename={"host": "hostId", "container": "containerId"}):
    host: int
    container: int = 0
    length: int = POD_IDS


class _Mappings(msgspec.Struct, rename="camel"):
    uid_mappings: list[_Mapping]
    gid_mappings: list[_Mapping]


class UserIds:
    """The ids of all pods below one directory. One caller at a time."""

    def __init__(
        self,
        pods: Path,
        in_use: Callable[[str], int] = lambda _: 0,
        report: Callable[[Problem], None] = lambda _: None,
    ) -> None:
        """`in_use` returns the first id of a pod that the runtime has, or 0. `report` is called for a damaged file."""
        self._pods = pods
        self._in_use = in_use
        self._report = report

    def first(self, uid: str) -> int:
        """Returns the first id of a pod, and allocates its ids if it has none. Raises ConfigError."""
        try:
            if own := self._read(uid):
                return own
            used = {self._read(path.parent.name) // POD_IDS for path in self._pods.glob(f"*/{FILE}")}
            block = next((block for block in range(1, BLOCKS - 1) if block not in used), None)
            if block is None:
                raise ConfigError("could not find an empty slot to allocate a user namespace")
            self._write(uid, block * POD_IDS)
        except OSError as error:
            raise ConfigError(f"cannot allocate ids for a user namespace: {error}") from error
        return block * POD_IDS

    def _write(self, uid: str, first: int) -> None:
        path, mapping = self._pods / uid / FILE, [_Mapping(host=first)]
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        write_durably(path, msgspec.json.encode(_Mappings(uid_mappings=mapping, gid_mappings=mapping)))

    def _read(self, uid: str) -> int:
        """The first id of a pod; 0 if it has none. A damaged file is replaced by what the runtime knows: a pod of which
        it has nothing uses no ids."""
        path = self._pods / uid / FILE
        try:
            mappings = msgspec.json.decode(read_head(path, LONGEST), type=_Mappings)
            if len(mappings.uid_mappings) != 1 or mappings.uid_mappings != mappings.gid_mappings:
                raise msgspec.ValidationError("must have the same single mapping for users and groups")
            return mappings.uid_mappings[0].host
        except NoSuchPath:
            return 0
        except (msgspec.MsgspecError, RecursionError, WrongKind) as error:
            self._report(Problem("damaged", uid, str(path), f"is not a user namespace of a pod: {error}"))
        first = self._in_use(uid)
        if first:
            self._write(uid, first)
        else:
            remove_path(path)
        return first
