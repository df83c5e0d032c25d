"""Plans how a persistent volume is set up on this node: a path of the node, a bind mount, or a block device. Pure."""

from dataclasses import dataclass
from pathlib import Path

from podwire.kubelet.volumes.errors import MountFailed
from podwire.kubelet.volumes.paths import VolumePaths
from podwire.kubelet.volumes.steps import BindMount, BlockDevice, Check, Step
from podwire.kubelet.volumes.volume_claims import BoundVolume
from podwire.objects.node_affinity import selected
from podwire.objects.nodes import Node
from podwire.objects.pods import Pod
from podwire.objects.volumes import HostPath, Volume

_NOT_SOURCES = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)
MOUNT_OPTIONS = "volume.beta.kubernetes.io/mount-options"
GROUP = "pv.beta.kubernetes.io/gid"
MAX_GROUP = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedVolume:
    """A persistent volume on this node, as containers get it."""

    name: str
    """The persistent volume's, or that of the pod's volume for an inline CSI volume."""
    path: Path
    read_only: bool
    block: bool = False
    once_by_one_pod: bool = False
    group: int | None = None
    """A group that the pod's processes need for the volume's files."""


def is_external(volume: Volume) -> bool:
    """Whether the volume's files are not the kubelet's own: it has a claim, or a CSI driver publishes it."""
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None or volume.csi is not None


def check_affinity(bound: BoundVolume, node: Node | None) -> None:
    """Raises MountFailed if the volume is not accessible from this node."""
    required = (bound.spec.get("nodeAffinity") or {}).get("required")
    if required is not None and (node is None or not selected(required)(node)):
        raise MountFailed(_operation(bound, "NodeAffinity check failed"), bound.name, "no matching NodeSelectorTerms")


def plan(paths: VolumePaths, pod: Pod, bound: BoundVolume) -> tuple[Step, MountedVolume]:
    """The step for a hostPath or local volume. Raises MountFailed for what is not supported."""
    spec, block = bound.spec, bound.block
    if (host_path := spec.get("hostPath")) is not None and not block:
        if mount_options(bound):
            reason = "Mount options are not supported for this volume type"
            raise MountFailed(_operation(bound, "MountOptionSupport check failed"), bound.name, reason)
        source = HostPath(path=host_path["path"], type=host_path.get("type") or "")
        return Check(volume=bound.name, source=source), _mounted(bound, Path(source.path))
    if (local := spec.get("local")) is None:
        kind = next((name for name in spec if name not in _NOT_SOURCES), "this type")
        mode = " in volumeMode Block" if block else ""
        raise MountFailed(
            _operation(bound, "SetUp failed"),
            bound.name,
            f"persistent volumes of type {kind}{mode} are not supported by podwire",
        )
    if block:
        return BlockDevice(volume=bound.name, path=Path(local["path"])), _mounted(bound, Path(local["path"]))
    if options := mount_options(bound):
        reason = f"mount options of local volumes are not supported by podwire: {', '.join(options)}"
        raise MountFailed(_operation(bound, "MountOptionSupport check failed"), bound.name, reason)
    security, directory = pod.spec.security_context, paths.persistent(pod.uid, "local-volume", bound.name)
    step = BindMount(
        volume=bound.name,
        source=Path(local["path"]),
        directory=directory,
        read_only=bound.read_only,
        group=security.fs_group,
        on_root_mismatch=security.fs_group_change_policy == "OnRootMismatch",
    )
    return step, _mounted(bound, directory)


def mount_options(bound: BoundVolume) -> list[str]:
    if annotated := bound.annotations.get(MOUNT_OPTIONS):
        return annotated.split(",")
    return list(bound.spec.get("mountOptions") or ())


def group_of(bound: BoundVolume | None) -> int | None:
    """The group that an administrator has annotated a volume with; nothing else than a number counts."""
    text = bound.annotations.get(GROUP, "") if bound is not None else ""
    return int(text) if text.isascii() and text.isdigit() and int(text) <= MAX_GROUP else None


def _mounted(bound: BoundVolume, path: Path) -> MountedVolume:
    return MountedVolume(
        name=bound.name,
        path=path,
        read_only=bound.read_only,
        block=bound.block,
        once_by_one_pod=bound.once_by_one_pod,
        group=group_of(bound),
    )


def _operation(bound: BoundVolume, what: str) -> str:
    return f"{'MapVolume' if bound.block else 'MountVolume'}.{what}"
