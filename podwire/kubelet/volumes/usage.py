"""Usage of persistent and CSI volumes, as /stats/summary shows it."""

import os
from dataclasses import dataclass
from pathlib import Path

from podwire.protocols.csi import csi_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedUsage:
    """Bytes and inodes; 0 for what is not known."""

    claim: str
    """The name of the PersistentVolumeClaim; empty for an inline volume."""
    capacity: int = 0
    available: int = 0
    used: int = 0
    inodes: int = 0
    inodes_free: int = 0
    inodes_used: int = 0


def of_response(response: pb.NodeGetVolumeStatsResponse, claim: str) -> MountedUsage:
    """The answer of a CSI driver."""
    units = {usage.unit: usage for usage in response.usage}
    size = units.get(pb.VolumeUsage.BYTES, pb.VolumeUsage())
    inodes = units.get(pb.VolumeUsage.INODES, pb.VolumeUsage())
    return MountedUsage(
        claim=claim,
        capacity=size.total,
        available=size.available,
        used=size.used,
        inodes=inodes.total,
        inodes_free=inodes.available,
        inodes_used=inodes.used,
    )


def of_path(path: Path, claim: str) -> MountedUsage:
    """Usage of the file system at a path. Raises OSError."""
    disk = os.statvfs(path)
    return MountedUsage(
        claim=claim,
        capacity=disk.f_blocks * disk.f_frsize,
        available=disk.f_bavail * disk.f_frsize,
        used=(disk.f_blocks - disk.f_bfree) * disk.f_frsize,
        inodes=disk.f_files,
        inodes_free=disk.f_ffree,
        inodes_used=disk.f_files - disk.f_ffree,
    )
