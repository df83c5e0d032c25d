"""Options of a container for its devices, from the responses of their plugins to Allocate. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from podwire.kubelet.devices.pod_devices import ANNOTATION
from podwire.protocols.cri import cri_pb2 as cri
from podwire.protocols.deviceplugin import deviceplugin_pb2 as pb
from podwire.protocols.grpc_status import FailedPrecondition


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRunOptions:
    env: dict[str, str] = field(default_factory=dict)
    mounts: tuple[cri.Mount, ...] = ()
    devices: tuple[cri.Device, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


NOTHING = DeviceRunOptions()


def check(answer: pb.ContainerAllocateResponse) -> None:
    """Raises FailedPrecondition, which names the invalid field."""
    for name in answer.envs:
        _require(
            bool(name) and "=" not in name and "\0" not in name,
            f"envs: {name!r} is not a name of an environment variable",
        )
    for at, mount in enumerate(answer.mounts):
        _require_path(f"mounts[{at}].container_path", mount.container_path)
        _require_path(f"mounts[{at}].host_path", mount.host_path)
    for at, device in enumerate(answer.devices):
        _require_path(f"devices[{at}].container_path", device.container_path)
        _require_path(f"devices[{at}].host_path", device.host_path)
        known = set(device.permissions) <= set("rwm")
        _require(known, f"devices[{at}].permissions: {device.permissions!r} must be of r, w and m")
    for at, device_id in enumerate(answer.cdi_devices):
        kind, _, name = device_id.name.partition("=")
        valid = "/" in kind and bool(name)
        _require(valid, f"cdi_devices[{at}].name: {device_id.name!r} is not VENDOR/CLASS=NAME")


def run_options(answers: Iterable[pb.ContainerAllocateResponse], ids: str) -> DeviceRunOptions:
    """All responses merged; where two plugins name the same variable or path, the first one counts."""
    env: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: dict[str, cri.Mount] = {}
    devices: dict[str, cri.Device] = {}
    cdi: dict[str, None] = {}
    for answer in answers:
        env = {**answer.envs, **env}
        annotations = {**answer.annotations, **annotations}
        for mount in answer.mounts:
            mounts.setdefault(mount.container_path, _mount(mount))
        for device in answer.devices:
            devices.setdefault(device.container_path, _device(device))
        cdi |= dict.fromkeys(device_id.name for device_id in answer.cdi_devices)
    return DeviceRunOptions(
        env=env,
        mounts=tuple(mounts.values()),
        devices=tuple(devices.values()),
        annotations={**annotations, **({ANNOTATION: ids} if ids else {})},
        cdi_devices=tuple(cdi),
    )


def _mount(mount: pb.Mount) -> cri.Mount:
    return cri.Mount(container_path=mount.container_path, host_path=mount.host_path, readonly=mount.read_only)


def _device(device: pb.DeviceSpec) -> cri.Device:
    return cri.Device(
        container_path=device.container_path, host_path=device.host_path, permissions=device.permissions or "rwm"
    )


def _require_path(field_: str, path: str) -> None:
    _require(path.startswith("/") and "\0" not in path, f"{field_}: {path!r} is not an absolute path")


def _require(met: bool, error: str) -> None:
    if not met:
        raise FailedPrecondition(f"Allocate: {error}")
