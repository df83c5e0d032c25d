"""The user namespace of a pod, as CRI asks for it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument

POD, NODE = pb.NamespaceMode.Value("POD"), pb.NamespaceMode.Value("NODE")
LAST_ID = 2**32 - 2
FIELD = "linux.security_context.namespace_options.userns_options"


@dataclass(frozen=True, slots=True)
class IdRange:
    """Ids of the host that are 0 and the following in a pod."""

    first: int
    count: int

    def oci(self) -> list[dict[str, int]]:
        """Returns the mapping as the OCI specification has it."""
        return [{"containerID": 0, "hostID": self.first, "size": self.count}]


def requested_range(options: pb.NamespaceOption) -> IdRange | None:
    """Returns the ids of a pod with a user namespace of its own; None for the node's. Raises InvalidArgument."""
    if not options.HasField("userns_options"):
        return None
    user = options.userns_options
    if user.mode == NODE:
        if user.uids or user.gids:
            raise InvalidArgument(f"{FIELD}: the node's user namespace has no mappings")
        return None
    if user.mode != POD:
        raise InvalidArgument(f"{FIELD}.mode: {pb.NamespaceMode.Name(user.mode)} is not supported, only POD and NODE")
    ranges = [_parsed(mappings, name) for mappings, name in ((user.uids, "uids"), (user.gids, "gids"))]
    if ranges[0] != ranges[1]:
        raise InvalidArgument(f"{FIELD}.gids: must map the same ids as uids")
    for name in ("network", "ipc", "pid"):
        if getattr(options, name) == NODE:
            raise InvalidArgument(f"{FIELD}: a pod with its own user namespace cannot use the node's {name} namespace")
    return ranges[0]


def _parsed(mappings: Iterable[pb.IDMapping], name: str) -> IdRange:
    entries = list(mappings)
    if len(entries) != 1:
        raise InvalidArgument(f"{FIELD}.{name}: has {len(entries)} mappings, and must have one")
    first, count = entries[0].host_id, entries[0].length
    if entries[0].container_id != 0 or count < 1 or first < 1 or first + count - 1 > LAST_ID:
        raise InvalidArgument(
            f"{FIELD}.{name}: container_id must be 0, and host_id and length must name ids between 1 and {LAST_ID}"
        )
    return IdRange(first, count)


def mount_mappings(mount: pb.Mount, ids: IdRange | None, field: str) -> Mapping[str, Any]:
    """Returns the mappings of a mount, in which files have the owners that they have on the host. Raises
    InvalidArgument for any other than the pod's."""
    if not mount.uidMappings and not mount.gidMappings:
        return {}
    if ids is None:
        raise InvalidArgument(f"{field}.uidMappings: only for a pod with a user namespace of its own")
    for name in ("uidMappings", "gidMappings"):
        if _parsed(getattr(mount, name), name) != ids:
            raise InvalidArgument(f"{field}.{name}: must be the mapping of the pod")
    return {"uidMappings": ids.oci(), "gidMappings": ids.oci()}


def check_ids(ids: IdRange | None, uid: int, gid: int, groups: Iterable[int]) -> None:
    """Refuses a user or group that a pod does not have."""
    for number in (uid, gid, *groups):
        if ids is not None and number >= ids.count:
            raise InvalidArgument(f"linux.security_context: id {number} is not one of the pod's {ids.count} ids")
