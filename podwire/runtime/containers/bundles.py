"""A container's bundle: its directory, mounts and cgroups.

    ID/config.json     the OCI specification   ID/rootfs   where the layers are mounted
    ID/cgroup          name of the cgroup      ID/shim     the shim's socket, pid and exit code
    ID/writable.json   upper and work directory, which are in the image store; it keeps the image for as long

Synchronous; called in worker threads. Every step is idempotent, and `remove` works after any of them.
"""

import contextlib
import os
import platform
import stat
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from podwire.durable.files import private_directory, replace_file
from podwire.linux.cgroups.groups import KernelCgroups
from podwire.linux.cgroups.values import Limits
from podwire.linux.errors import LinuxError, NoSuchCgroup, NoSuchMount
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.fs.overlay import mount_overlay
from podwire.linux.fs.paths import open_in_root
from podwire.linux.fs.trees import remove_path
from podwire.linux.proc.namespaces import open_namespace
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import FailedPrecondition, Internal, InvalidArgument, NotFound
from podwire.protocols.nri.oci.cdi import inject
from podwire.runtime.cdi import BadDevice, Registry, links_of
from podwire.runtime.containers import image_volumes
from podwire.runtime.containers.devices import requested_devices
from podwire.runtime.containers.host import HostPrivileges
from podwire.runtime.containers.image_volumes import ImageVolume
from podwire.runtime.containers.pod_cgroups import container_parent, owner_of_group, pod_limits
from podwire.runtime.containers.pod_pids import PodPids
from podwire.runtime.containers.seccomp import COMPILED, read_localhost_profile, with_compiled_seccomp
from podwire.runtime.cri.resources import limits_of
from podwire.runtime.images import Image, ImageError, Images
from podwire.runtime.images.errors import NoSuchImage
from podwire.runtime.spec import Container, Pod, build
from podwire.runtime.spec.build import POD
from podwire.runtime.spec.devices import has_more_than_defaults, parse_rules
from podwire.runtime.spec.mounts import check_mounts
from podwire.runtime.spec.user_namespaces import IdRange
from podwire.runtime.spec.users import Accounts, User, user_of

DEFAULT_PIDS = 16_384
"""Processes and threads of a container whose kubelet sets no limit: a fork bomb must not take those of the node."""
LOWER = "lower"
"""The directory of a bundle in which layers are mounted with mapped owners, until the overlay is; and image volumes."""
ACCOUNTS_BYTES = 1024 * 1024
"""Bytes of an image's passwd or group that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """A container that can be created: everything was looked up and checked, nothing was done."""

    id: str
    image: Image
    log_path: str
    user: User
    spec: Mapping[str, Any]
    sources: tuple[str, ...]
    """Paths of the host that are to be mounted."""
    links: Mapping[str, str]
    """Links of the host that move into its network namespace, and their names there."""
    ids: IdRange | None = None
    """The ids of its pod, with a user namespace of its own."""
    images: tuple[ImageVolume, ...] = ()
    """Images that are mounted as volumes."""


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
    cgroup_files: tuple[str, ...]
    """The `cgroup.procs` files that the launcher writes itself into."""


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
    """The parent cgroup of containers whose pod names none; only our groups may be below it."""
    mapped_roots: Path
    """Where root file systems of pods with a user namespace are mounted: their root must reach them by path."""
    pids: PodPids
    """Pid namespaces that containers of a pod share."""
    creating_cgroup: Lock = field(default_factory=Lock)

    def ids(self) -> set[str]:
        """Returns the ids of containers that have a directory."""
        try:
            return {path.name for path in self.directory.iterdir() if path.is_dir() and not path.is_symlink()}
        except FileNotFoundError:
            return set()

    def bundle(self, id_: str) -> Path:
        return self.directory / id_

    def rootfs(self, id_: str, ids: IdRange | None) -> Path:
        return (self.mapped_roots / id_ if ids else self.bundle(id_)) / "rootfs"

    def state(self, id_: str) -> Path:
        return self.bundle(id_) / "shim"

    def plan(self, id_: str, pod: Pod, config: pb.ContainerConfig, target_pid: int) -> ContainerPlan:
        """Looks up everything that a container needs. Raises NotFound for an image, InvalidArgument for the rest."""
        limits_of(config.linux.resources)  # an error that StartContainer would find, too
        image = self._image(config.image.image, "config.image.image")
        images = image_volumes.requested(config.mounts, self._image)
        layers = self.images.rootfs_layers(image)
        accounts = Accounts(_first(layers, "etc/passwd"), _first(layers, "etc/group"))
        security = config.linux.security_context
        if security.namespace_options.pid == POD:
            with self.creating_cgroup:
                self.pids.ensure(pod, self._group(pod.config, pod.id, pod.id))
        devices, rules = requested_devices(config.devices, privileged=security.privileged)
        container = Container(
            id=id_,
            config=config,
            rootfs=str(self.rootfs(id_, pod.ids)),
            cgroup=self._group(pod.config, pod.id, id_),
            entrypoint=image.config.entrypoint,
            command=image.config.cmd,
            environment=image.config.env,
            working_dir=image.config.workdir,
            user=image.config.user,
            images=image_volumes.sources(self.bundle(id_) / LOWER, images),
            accounts=accounts,
            target_pid=target_pid,
            devices=devices,
            device_rules=rules,
            available=self.host.capabilities,
            apparmor_profiles=self.host.apparmor_profiles(),
            machine=platform.machine(),
            seccomp_profile=read_localhost_profile(security),
            oom_score_adj=self.host.oom_score_adj(config.linux.resources.oom_score_adj),
        )
        spec = build(pod, container)
        if any(mount.propagation or mount.recursive_read_only for mount in config.mounts):
            recursive = self.host.recursive_read_only
            check_mounts(config.mounts, self.mounts.list(), recursive_read_only=recursive, resolve=os.path.realpath)
        links = self._inject_devices(spec, [device.name for device in config.CDI_devices])
        if links and not pod.network:
            raise InvalidArgument("config.CDI_devices: net devices need a pod with a network namespace of its own")
        return ContainerPlan(
            id=id_,
            image=image,
            log_path=_log_path(pod.config, config),
            user=user_of(security, image.config.user, accounts),
            spec=spec,
            sources=tuple(mount.host_path for mount in config.mounts if not mount.HasField("image")),
            links=links,
            ids=pod.ids,
            images=images,
        )

    def _inject_devices(self, spec: dict[str, Any], names: Sequence[str]) -> dict[str, str]:
        """Puts CDI devices into the specification. Returns their net devices."""
        if not names:
            return {}
        try:
            edits = self.devices.resolve(names)
        except BadDevice as error:
            raise InvalidArgument(f"config.CDI_devices: {error}") from error
        inject(spec, names, lambda _names: edits)
        return links_of(edits)

    def _image(self, reference: str, field_name: str) -> Image:
        try:
            image = self.images.status(reference)
        except ImageError as error:
            raise InvalidArgument(f"{field_name}: {error}") from error
        if image is None:
            raise NotFound(f"{field_name}: {reference!r} is not on this node")
        return image

    def write(self, plan: ContainerPlan) -> None:
        """Writes the bundle, and has the image store hold the image."""
        home = self.bundle(plan.id)
        self._check_devices(plan.spec)
        for source in plan.sources:
            if not os.path.lexists(source):  # kubelets rely on it for hostPath volumes without a type
                Path(source).mkdir(mode=0o755, parents=True, exist_ok=True)
        for directory in (home, home / "rootfs", home / "shim"):
            private_directory(directory)
        writable = self.images.prepare(plan.id, plan.image, [volume.image for volume in plan.images])
        image_volumes.check_paths(home / LOWER, plan.images, self.images.rootfs_layers)
        if plan.ids:
            self._own_root(plan.id, plan.ids, writable.upper)
        (home / "writable.json").write_bytes(msgspec.json.encode([str(writable.upper), str(writable.work)]))
        spec = with_compiled_seccomp(dict(plan.spec))
        replace_file(home / "config.json", msgspec.json.encode(spec))  # environment variables may be secrets

    def _own_root(self, id_: str, ids: IdRange, upper: Path) -> None:
        """Gives the root of a user namespace its root file system, and the way to it."""
        self.mapped_roots.mkdir(mode=0o711, parents=True, exist_ok=True)
        for directory in (self.mapped_roots, *self.mapped_roots.parents):
            if not directory.stat().st_mode & stat.S_IXOTH:
                raise FailedPrecondition(
                    f"{directory}: the root of a user namespace cannot pass this directory, `chmod o+x` helps"
                )
        rootfs = self.rootfs(id_, ids)
        for directory in (rootfs.parent, rootfs):
            directory.mkdir(mode=0o700, exist_ok=True)
            os.chown(directory, ids.first, ids.first)
        owner = upper.stat()
        if owner.st_uid < ids.first:
            os.chown(upper, ids.first + owner.st_uid, ids.first + owner.st_gid)

    def _mount_root(self, id_: str, spec: Mapping[str, Any], layers: Sequence[Path]) -> None:
        """Mounts the layers; for a user namespace each with mapped owners, so that they need not be copied."""
        upper, work = self.writable(id_)
        rootfs = spec["root"]["path"]
        user = _user_namespace(spec)
        if not user:
            mount_overlay(rootfs, layers, upper=upper, work=work)
            return
        with ExitStack() as mounted:
            namespace = open_namespace(user, "user")
            mounted.callback(os.close, namespace)
            mapped = []
            for number, layer in enumerate(layers):
                target = self.bundle(id_) / LOWER / str(number)
                target.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.mounts.bind_mapped(layer, target, namespace)
                mounted.callback(self.mounts.unmount, target, lazily=True)  # the overlay keeps them
                mapped.append(target)
            mount_overlay(rootfs, mapped, upper=upper, work=work)

    def _mount_images(self, id_: str, spec: Mapping[str, Any], config: pb.ContainerConfig) -> None:
        for number, mount in enumerate(config.mounts):
            if mount.HasField("image"):
                layers = self.images.layers_of(mount.image.image_ref)
                path = mount.image_sub_path
                image_volumes.mount(self.mounts, self.bundle(id_) / LOWER, number, layers, path, _user_namespace(spec))

    def _check_devices(self, spec: Mapping[str, Any]) -> None:
        """Refuses a container that could reach devices of the host because nothing keeps them from it."""
        rules = parse_rules(spec)
        if self.cgroups.limits_devices or not rules or rules[0].allow:
            return
        capabilities = spec["process"]["capabilities"]["bounding"]
        if "CAP_MKNOD" in capabilities or has_more_than_defaults(rules):
            raise FailedPrecondition(
                "config: a container with the capability MKNOD or with devices needs a cgroup hierarchy that limits "
                "devices, and this node has none; `podwire doctor` says what helps"
            )

    def writable(self, id_: str) -> tuple[Path, Path]:
        """Returns the upper and the work directory of a container's overlay."""
        upper, work = msgspec.json.decode((self.bundle(id_) / "writable.json").read_bytes(), type=tuple[str, str])
        return Path(upper), Path(work)

    def is_complete(self, id_: str) -> bool:
        """Whether the bundle has everything that a start needs."""
        return (self.bundle(id_) / "config.json").exists()

    def spec(self, id_: str) -> dict[str, Any]:
        """Returns a container's specification; empty when its creation was interrupted."""
        try:
            spec = msgspec.json.decode((self.bundle(id_) / "config.json").read_bytes(), type=dict[str, Any])
        except (FileNotFoundError, msgspec.MsgspecError):
            return {}
        spec.get("annotations", {}).pop(COMPILED, None)
        return spec

    def mount(
        self,
        id_: str,
        image_id: str,
        sandbox_id: str,
        pod: pb.PodSandboxConfig,
        config: pb.ContainerConfig,
        limits: Limits,
    ) -> MountedBundle:
        """Mounts the layers, creates the cgroup with its limits, and the log's directory."""
        self.unmount(id_)  # leftovers of an interrupted start
        home, group = self.bundle(id_), self._group(pod, sandbox_id, id_)
        try:
            layers = self.images.layers_of(image_id)  # by id: a name may mean another image by now
            (home / "cgroup").write_text(group, encoding="utf-8")  # first: `unmount` looks there
            with self.creating_cgroup:  # the first cgroup below a parent enables the parent's controllers
                self.cgroups.create(group)
            self.limit_pod(sandbox_id, pod)
            if limits.pids is None and self.cgroups.has("pids"):
                limits = limits._replace(pids=DEFAULT_PIDS)
            self.cgroups.limit(group, limits)
            spec = self.spec(id_)
            if self.cgroups.limits_devices:
                self.cgroups.limit_devices(group, parse_rules(spec))
            self._mount_root(id_, spec, layers)
            self._mount_images(id_, spec, config)
        except NoSuchImage as error:
            raise NotFound(f"config.image.image: {image_id!r} is not on this node") from error
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
            cgroup_files=tuple(self.cgroups.procs_files(group)),
        )

    def _group(self, pod: pb.PodSandboxConfig, sandbox_id: str, id_: str) -> str:
        """Returns the name of a container's cgroup."""
        return f"{container_parent(pod, sandbox_id, self.cgroup_parent)}/{id_}"

    def limit_pod(self, sandbox_id: str, pod: pb.PodSandboxConfig) -> None:
        """Sets the limits of a pod's cgroup, if it has one of ours and a container was started in it."""
        limits = pod_limits(pod)
        if limits is not None and not self.cgroups.has("pids"):
            limits = limits._replace(pids=None)
        if limits is not None:
            with contextlib.suppress(NoSuchCgroup):
                self.cgroups.limit(container_parent(pod, sandbox_id, self.cgroup_parent), limits)

    def remove_pod(self, sandbox_id: str, pod: pb.PodSandboxConfig) -> None:
        """Ends the pause process of a pod whose containers have ended, and removes its cgroup. Idempotent."""
        self.pids.end(sandbox_id, self._group(pod, sandbox_id, sandbox_id))
        if pod_limits(pod) is not None:
            group = container_parent(pod, sandbox_id, self.cgroup_parent)
            self.cgroups.end(group)
            _remove_systemd_group(group)

    def cgroup(self, id_: str) -> str:
        """Returns the container's cgroup; empty before it was started."""
        try:
            return (self.bundle(id_) / "cgroup").read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def update(self, id_: str, limits: Limits) -> None:
        """Changes the limits of a running container."""
        try:
            self.cgroups.limit(self.cgroup(id_), limits)
        except LinuxError as error:
            raise InvalidArgument(f"linux: {error}") from error

    def stop_signal(self, image_id: str) -> str:
        """Returns the stop signal of an image; empty when it has none."""
        image = self.images.status(image_id)
        return image.config.stop_signal if image else ""

    def was_oom_killed(self, id_: str) -> bool:
        group = self.cgroup(id_)
        try:
            return bool(group and self.cgroups.usage(group).oom_kills)
        except LinuxError:
            return False

    def kill(self, id_: str) -> None:
        """Kills all processes of a container."""
        if group := self.cgroup(id_):
            self.cgroups.kill(group)

    def unmount(self, id_: str) -> None:
        """Kills what is left in the cgroup, removes it, and unmounts the root file system. Idempotent."""
        if group := self.cgroup(id_):
            self.cgroups.end(group)
        lower = (self.bundle(id_) / LOWER).glob("*")  # of an interrupted start
        for target in (self.bundle(id_) / "rootfs", self.mapped_roots / id_ / "rootfs", *lower):
            try:
                while True:
                    self.mounts.unmount(target, lazily=True)
            except (NoSuchMount, FileNotFoundError):
                pass

    def remove(self, id_: str) -> None:
        """Removes everything but the record."""
        self.unmount(id_)
        self.images.release(id_)
        for directory in (*(self.bundle(id_) / name for name in ("rootfs", "shim", LOWER)), self.mapped_roots / id_):
            remove_path(directory)

    def remove_cgroup_parent(self) -> None:
        """Removes the parent of all cgroups, if it is empty."""
        for tree in self.cgroups.trees:
            with contextlib.suppress(OSError):
                Path(tree.mount, self.cgroup_parent).rmdir()
        _remove_systemd_group(self.cgroup_parent)

    def sweep(self, known: set[str], pods: set[str]) -> None:
        """Removes mounts, cgroups and writable layers that have no record. `known` are containers, `pods` sandboxes."""
        for mounted in self.mounts.list():
            path = Path(mounted.target)
            home = next((above for above in (self.directory, self.mapped_roots) if path.is_relative_to(above)), path)
            if path != home and path.relative_to(home).parts[0] not in known:
                self.mounts.unmount(path, lazily=True)
        for group in self.cgroups.below(self.cgroup_parent):
            if owner_of_group(group.removeprefix(f"{self.cgroup_parent}/")) not in known | pods:
                self.cgroups.end(group)
        for id_ in set(self.images.held()) - known:
            self.images.release(id_)


def _user_namespace(spec: Mapping[str, Any]) -> str:
    """The path of the pod's own user namespace; empty for the node's."""
    return next((entry["path"] for entry in spec["linux"]["namespaces"] if entry["type"] == "user"), "")


def _remove_systemd_group(group: str) -> None:
    """Removes an empty cgroup in systemd's hierarchy, where runc makes one, too."""
    with contextlib.suppress(OSError):
        Path("/sys/fs/cgroup/systemd", group).rmdir()


def _log_path(pod: pb.PodSandboxConfig, config: pb.ContainerConfig) -> str:
    if not pod.log_directory or not config.log_path:
        return ""
    return f"{pod.log_directory}/{config.log_path}"


def _first(layers: Sequence[Path], path: str) -> str:
    """Reads a file of an image as a container would see it; symlinks cannot lead out of the layer."""
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
