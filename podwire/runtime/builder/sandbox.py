"""Runs the commands of a build: the OCI runtime in a throw-away cgroup, on a root that is mounted for one step."""

import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from podwire.linux.cgroups.groups import KernelCgroups
from podwire.linux.errors import LinuxError
from podwire.linux.proc import processes
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.grpc_status import InvalidArgument
from podwire.runtime.builder.errors import StepFailed
from podwire.runtime.containers.devices import requested_devices
from podwire.runtime.containers.host import HostPrivileges
from podwire.runtime.containers.seccomp import with_compiled_seccomp
from podwire.runtime.spec import Container, Pod, build
from podwire.runtime.spec.devices import parse_rules
from podwire.runtime.spec.users import Accounts

CGROUPS = "podwire-build"
"""The parent of the cgroups of builds."""
HOST_FILES = ("/etc/resolv.conf", "/etc/hosts")
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the container's path
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LINE = 1 << 16

Output = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of RUN."""

    arguments: Sequence[str]
    environment: Sequence[str]
    working_dir: str
    user: str
    network: str = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildSandbox:
    """Runs a command in a mounted root file system, with the default capabilities and seccomp profile of containers."""

    shim: Path
    runtime: str
    """The path of crun or runc."""
    cover_unified: bool = False
    cgroups: KernelCgroups = field(default_factory=KernelCgroups)
    host: HostPrivileges = field(default_factory=HostPrivileges)

    def run(self, root: Path, bundle: Path, command: Command, accounts: Accounts, output: Output) -> int:
        """Runs to the end, each line of output handed on. Returns the exit code. Raises StepFailed.

        The bundle also holds the state of the OCI runtime: what a killed build leaves goes with its stage.
        """
        id_ = f"build-{os.getpid()}-{os.urandom(4).hex()}"
        group = f"{CGROUPS}/{id_}"
        try:
            spec = self._spec(id_, root, command, accounts, group)
        except InvalidArgument as error:
            raise StepFailed(str(error)) from error
        bundle.mkdir(mode=0o700)
        (bundle / "config.json").write_bytes(msgspec.json.encode(with_compiled_seccomp(spec)))
        missing = _missing_mount_points(root, spec)
        try:
            with ExitStack() as undo:
                self.cgroups.create(group)
                undo.callback(self._remove_cgroup, group)
                if self.cgroups.limits_devices:
                    self.cgroups.limit_devices(group, parse_rules(spec))
                code = self._run(id_, bundle, group, output)
        except LinuxError as error:
            raise StepFailed(str(error)) from error
        finally:
            shutil.rmtree(bundle, ignore_errors=True)
        _remove_mount_points(root, missing)
        return code

    def _run(self, id_: str, bundle: Path, group: str, output: Output) -> int:
        oci = [self.runtime, "--root", str(bundle / "state")]
        oci += ["--cgroup-manager=disabled"] if Path(self.runtime).name == "crun" else []
        argv = [str(self.shim), "exec", "--die-with", str(os.getpid())]
        for procs in self.cgroups.procs_files(group):
            argv += ["--cgroup", str(Path(procs).parent)]
        argv += ["--cover-unified"] if self.cover_unified else []
        argv += ["--", *oci, "run", "--bundle", str(bundle), id_]
        with ExitStack() as held:
            nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, nothing)
            read, write = os.pipe()
            held.callback(os.close, read)
            try:
                child = processes.spawn(argv, env={"PATH": PATH}, files=(nothing, write, write))
            finally:
                os.close(write)
            held.callback(os.close, child.pidfd)
            with ExitStack() as undo:
                undo.callback(processes.reap, child)
                undo.callback(self.cgroups.kill, group)
                undo.callback(processes.send_signal, child.pidfd, signal.SIGTERM)
                with os.fdopen(os.dup(read), "rb") as file:
                    while line := file.readline(_LINE):
                        output(line.decode("utf-8", "replace").rstrip("\n"))
                code = processes.reap(child)
                undo.pop_all()
        return code if code >= 0 else 128 - code

    def _remove_cgroup(self, group: str) -> None:
        self.cgroups.kill(group)
        self.cgroups.remove(group)
        for left in (*self.cgroups.below(CGROUPS), CGROUPS):  # also of builds that were killed
            with suppress(LinuxError):
                if not self.cgroups.pids(left):
                    self.cgroups.remove(left)

    def _spec(self, id_: str, root: Path, command: Command, accounts: Accounts, group: str) -> dict[str, Any]:
        devices, rules = requested_devices((), privileged=False)
        config = pb.ContainerConfig(command=command.arguments, working_dir=command.working_dir)
        config.metadata.name = id_
        options = config.linux.security_context.namespace_options
        options.pid = options.ipc = pb.CONTAINER
        if command.network == "host":
            for path in HOST_FILES:
                if Path(path).is_file():
                    config.mounts.add(container_path=path, host_path=path, readonly=True)
        container = Container(
            id=id_,
            config=config,
            rootfs=str(root),
            cgroup=group,
            environment=command.environment,
            user=command.user,
            accounts=accounts,
            devices=devices,
            device_rules=rules,
            available=self.host.capabilities,
            apparmor_profiles=self.host.apparmor_profiles(),
            machine=os.uname().machine,
        )
        spec = build(Pod(id=id_, config=pb.PodSandboxConfig(hostname="build")), container)
        memory = next(mount for mount in spec["mounts"] if mount["destination"] == SHARED_MEMORY)
        memory |= {"type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=64m"]}
        if command.network == "none":
            spec["linux"]["namespaces"].append({"type": "network"})
        return spec


def _missing_mount_points(root: Path, spec: Mapping[str, Any]) -> list[Path]:
    """Returns mount points, and directories above them, that the OCI runtime will have to make in the root."""
    wanted: set[str] = set()
    for mount in spec["mounts"]:
        parts = mount["destination"].strip("/").split("/")
        wanted |= {"/".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
    return [root / path for path in sorted(wanted) if not os.path.lexists(root / path)]


def _remove_mount_points(root: Path, missing: Sequence[Path]) -> None:
    """Removes those that are still empty: they belong to the sandbox, not to the image."""
    for path in reversed(missing):
        if not path.parent.resolve().is_relative_to(root.resolve()):
            continue
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            elif path.is_file() and not path.is_symlink() and not path.stat().st_size:
                path.unlink()
