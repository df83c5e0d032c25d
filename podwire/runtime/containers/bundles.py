"""A container's directory: what the OCI runtime and the shim find there, and what must be mounted and unmounted for it.

    HOME/config.json   what to run          HOME/rootfs       where the layers are mounted
    HOME/cgroup        where it is counted  HOME/shim         the shim's socket, pid and exit code

What a container writes lies in the image store, which keeps the image for as long.

Synchronous; called in worker threads. Every step can be done again, removal at any point of the way.
"""

import contextlib
import os
import platform
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from podwire.linux.cgroups.groups import KernelCgroups
from podwire.linux.errors import LinuxError, NoSuchMount
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.fs.overlay import mount_overlay
from podwire.linux.fs.paths import open_in_root
from podwire.linux.values import Limits
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import Internal, InvalidArgument, NotFound
from podwire.protocols.nri.oci.cdi import inject
from podwire.runtime.cdi import BadDevice, Registry, links_of
from podwire.runtime.containers.devices import asked_devices
from podwire.runtime.containers.host import HostPrivileges
from podwire.runtime.cri.resources import limits_of
from podwire.runtime.images import Image, ImageError, Images
from podwire.runtime.images.errors import NoSuchImage
from podwire.runtime.spec import Container, Pod, build
from podwire.runtime.spec.users import Accounts, User, user_of

ACCOUNTS_BYTES = 1024 * 1024
"""How much of an image's passwd or group is read; a larger one is hostile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """A container that can be made: everything was looked up and checked, nothing was done."""

    id: str
    image: Image
    log_path: str
    user: User
    spec: Mapping[str, Any]
    sources: tuple[str, ...]
    """What of the host is to be mounted."""
    links: Mapping[str, str]
    """Links of the host that move into its network namespace, and what they are called there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedBundle:
    """A container that can be started."""

    id: str
    bundle: Path
    state: Path
    log_path: str
    tty: bool
    stdin: bool
    stdin_once: bool
    cgroup_doors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bundles:
    """Makes and removes containers' directories, mounts and cgroups."""

    directory: Path
    images: Images
    cgroups: KernelCgroups
    mounts: KernelMounts
    host: HostPrivileges
    devices: Registry
    cgroup_parent: str
    """Where containers are counted whose pod names no parent; nobody else's groups may lie below it."""
    making_group: Lock = field(default_factory=Lock)

    def home(self, id_: str) -> Path:
        return self.directory / id_

    def state(self, id_: str) -> Path:
        return self.home(id_) / "shim"

    def plan(self, id_: str, pod: Pod, config: pb.ContainerConfig, target_pid: int) -> ContainerPlan:
        """Look everything up that a container needs; raises NotFound for an image, InvalidArgument for the rest."""
        limits_of(config.linux.resources)  # so that start does not stumble on what create could have told
        image = self._image(config.image.image)
        accounts = self._accounts(image)
        security = config.linux.security_context
        container = Container(
            id=id_,
            config=config,
            rootfs=str(self.home(id_) / "rootfs"),
            cgroup=self._group(pod.config, id_),
            entrypoint=image.config.entrypoint,
            command=image.config.cmd,
            environment=image.config.env,
            working_dir=image.config.workdir,
            user=image.config.user,
            accounts=accounts,
            target_pid=target_pid,
            devices=asked_devices(config.devices, privileged=security.privileged),
            available=self.host.capabilities,
            machine=platform.machine(),
            oom_score_adj=self.host.oom_score_adj(config.linux.resources.oom_score_adj),
        )
        spec = build(pod, container)
        links = self._with_devices(spec, [each.name for each in config.CDI_devices])
        if links and not pod.network:
            raise InvalidArgument("config.CDI_devices: net devices need a network namespace of the pod's own")
        return ContainerPlan(
            id=id_,
            image=image,
            log_path=_log_path(pod.config, config),
            user=user_of(security, image.config.user, accounts),
            spec=spec,
            sources=tuple(each.host_path for each in config.mounts),
            links=links,
        )

    def _with_devices(self, spec: dict[str, Any], names: Sequence[str]) -> dict[str, str]:
        """Put CDI devices into the specification; the links that they bring."""
        if not names:
            return {}
        try:
            edits = self.devices.resolve(names)
        except BadDevice as error:
            raise InvalidArgument(f"config.CDI_devices: {error}") from error
        inject(spec, names, lambda _names: edits)
        return links_of(edits)

    def _image(self, reference: str) -> Image:
        try:
            image = self.images.status(reference)
        except ImageError as error:
            raise InvalidArgument(f"config.image.image: {error}") from error
        if image is None:
            raise NotFound(f"config.image.image: {reference!r} is not on this node")
        return image

    def _layers(self, image_id: str) -> Sequence[Path]:
        """By id: a name may mean another image by now."""
        try:
            return self.images.layers_of(image_id)
        except NoSuchImage as error:
            raise NotFound(f"config.image.image: {image_id!r} is not on this node") from error

    def _accounts(self, image: Image) -> Accounts:
        """The image's users and groups: the topmost layer that has such a file counts."""
        layers = self.images.rootfs_layers(image)
        return Accounts(_first(layers, "etc/passwd"), _first(layers, "etc/group"))

    def write(self, planned: ContainerPlan) -> None:
        """Make the directory, and let the image store hold the image."""
        home = self.home(planned.id)
        for source in planned.sources:
            if not os.path.lexists(source):  # a kubelet relies on it for host paths of no type
                Path(source).mkdir(mode=0o755, parents=True, exist_ok=True)
        for name in ("rootfs", "shim"):
            (home / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        writable = self.images.prepare(planned.id, planned.image)
        (home / "writable.json").write_bytes(msgspec.json.encode([str(writable.upper), str(writable.work)]))
        (home / "config.json").write_bytes(msgspec.json.encode(planned.spec))

    def writable(self, id_: str) -> tuple[Path, Path]:
        """Where a container writes: the upper and the work directory of its overlay."""
        upper, work = msgspec.json.decode((self.home(id_) / "writable.json").read_bytes(), type=tuple[str, str])
        return Path(upper), Path(work)

    def whole(self, id_: str) -> bool:
        """Whether everything is there that a start needs."""
        return (self.home(id_) / "config.json").exists()

    def spec(self, id_: str) -> dict[str, Any]:
        """What a container was made by; empty when it was not made to its end."""
        try:
            return msgspec.json.decode((self.home(id_) / "config.json").read_bytes(), type=dict[str, Any])
        except (FileNotFoundError, msgspec.MsgspecError):
            return {}

    def mount(
        self, id_: str, image_id: str, pod: pb.PodSandboxConfig, config: pb.ContainerConfig, limits: Limits
    ) -> MountedBundle:
        """Mount the layers, make the cgroup with its limits, and the log's directory."""
        self.unmount(id_)  # what a start that was cut short has left
        home, group = self.home(id_), self._group(pod, id_)
        layers = self._layers(image_id)
        upper, work = self.writable(id_)
        try:
            (home / "cgroup").write_text(group, encoding="utf-8")  # first: whoever cleans up looks there
            with self.making_group:  # the first one of a parent fills that in, and the second must not come before
                self.cgroups.create(group)
            self.cgroups.limit(group, limits)
            mount_overlay(home / "rootfs", layers, upper=upper, work=work)
        except LinuxError as error:
            raise Internal(f"container {id_}: {error}") from error
        log_path = _log_path(pod, config)
        if log_path:
            Path(log_path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        return MountedBundle(
            id=id_,
            bundle=home,
            state=self.state(id_),
            log_path=log_path,
            tty=config.tty,
            stdin=config.stdin,
            stdin_once=config.stdin_once,
            cgroup_doors=tuple(self.cgroups.doors(group)),
        )

    def _group(self, pod: pb.PodSandboxConfig, id_: str) -> str:
        """Where a container is counted: below the parent that the kubelet made for its pod."""
        return f"{pod.linux.cgroup_parent.strip('/') or self.cgroup_parent}/{id_}"

    def cgroup(self, id_: str) -> str:
        """The container's cgroup; empty before it was started."""
        try:
            return (self.home(id_) / "cgroup").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def update(self, id_: str, limits: Limits) -> None:
        """Change the limits of a container that runs."""
        try:
            self.cgroups.limit(self.cgroup(id_), limits)
        except LinuxError as error:
            raise InvalidArgument(f"linux: {error}") from error

    def stop_signal(self, image_id: str) -> str:
        """The signal that an image wants to be stopped by; empty when it does not say."""
        image = self.images.status(image_id)
        return image.config.stop_signal if image else ""

    def was_oom_killed(self, id_: str) -> bool:
        group = self.cgroup(id_)
        try:
            return bool(group and self.cgroups.usage(group).oom_kills)
        except LinuxError:
            return False

    def kill(self, id_: str) -> None:
        """Kill everything in the container, at once."""
        if group := self.cgroup(id_):
            self.cgroups.kill(group)

    def unmount(self, id_: str) -> None:
        """Kill what is left in the cgroup, remove it, and take the root file system away. Again is fine."""
        if group := self.cgroup(id_):
            self.cgroups.kill(group)
            self.cgroups.remove(group)
        rootfs = self.home(id_) / "rootfs"
        try:
            while True:
                self.mounts.unmount(rootfs, lazily=True)
        except (NoSuchMount, FileNotFoundError):
            pass

    def remove(self, id_: str) -> None:
        """Remove all but the record."""
        self.unmount(id_)
        self.images.release(id_)
        for name in ("rootfs", "shim"):
            shutil.rmtree(self.home(id_) / name, ignore_errors=True)

    def leave(self) -> None:
        """Remove the parent of all cgroups, if nothing is in it any more; runc makes one in systemd's tree, too."""
        mounts = {tree.mount for tree in self.cgroups.trees} | {"/sys/fs/cgroup/systemd"}
        for mount in mounts:
            with contextlib.suppress(OSError):
                Path(mount, self.cgroup_parent).rmdir()

    def sweep(self, known: set[str]) -> None:
        """Take down what has our name on it and no record: mounts, cgroups, and what lost containers wrote."""
        for mounted in self.mounts.list():
            path = Path(mounted.target)
            if path.name == "rootfs" and path.parent.parent == self.directory and path.parent.name not in known:
                self.mounts.unmount(path, lazily=True)
        for group in self.cgroups.below(self.cgroup_parent):
            if group.rpartition("/")[2] not in known:
                self.cgroups.kill(group)
                self.cgroups.remove(group)
        for id_ in set(self.images.held()) - known:
            self.images.release(id_)


def _log_path(pod: pb.PodSandboxConfig, config: pb.ContainerConfig) -> str:
    if not pod.log_directory or not config.log_path:
        return ""
    return f"{pod.log_directory}/{config.log_path}"


def _first(layers: Sequence[Path], path: str) -> str:
    """A file of an image, read as a container would see it; never followed out of its layer."""
    for layer in layers:
        root = os.open(layer, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            descriptor = open_in_root(root, path, os.O_RDONLY | os.O_NONBLOCK)
        except (LinuxError, OSError):
            continue
        finally:
            os.close(root)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            return file.read(ACCOUNTS_BYTES).decode("utf-8", "replace")
    return ""
