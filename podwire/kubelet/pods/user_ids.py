"""Ids of the host for pods with a user namespace of their own (`hostUsers: false`): 65,536 for each, never shared.

The ids of a pod are in the file `userns` of its directory, in the format of upstream's kubelet, and are free again when
the directory is removed. The file is on disk before a sandbox uses the ids.
"""

from pathlib import Path

import msgspec

from podwire.durable.files import write_durably
from podwire.kubelet.config.environment import ConfigError
from podwire.kubelet.config.security import POD_IDS

FILE = "userns"
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

    def __init__(self, pods: Path) -> None:
        self._pods = pods

    def first(self, uid: str) -> int:
        """Returns the first id of a pod, and allocates its ids if it has none. Raises ConfigError."""
        path = self._pods / uid / FILE
        try:
            if path.exists():
                return self._read(path)
            used = {self._read(taken) // POD_IDS for taken in self._pods.glob(f"*/{FILE}")}
            block = next((block for block in range(1, BLOCKS - 1) if block not in used), None)
            if block is None:
                raise ConfigError("could not find an empty slot to allocate a user namespace")
            mapping = [_Mapping(host=block * POD_IDS)]
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            write_durably(path, msgspec.json.encode(_Mappings(uid_mappings=mapping, gid_mappings=mapping)))
        except OSError as error:
            raise ConfigError(f"cannot allocate ids for a user namespace: {error}") from error
        return block * POD_IDS

    def _read(self, path: Path) -> int:
        try:
            mappings = msgspec.json.decode(path.read_bytes(), type=_Mappings)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ConfigError(f"{path}: is not a user namespace of a pod: {error}") from error
        if len(mappings.uid_mappings) != 1 or mappings.uid_mappings != mappings.gid_mappings:
            raise ConfigError(f"{path}: must have the same single mapping for users and groups")
        return mappings.uid_mappings[0].host
