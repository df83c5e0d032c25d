"""Checks what this machine has of what a cluster needs; each feature is tried, without leaving anything behind."""

import contextlib
import errno
import importlib.util
import os
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from podwire.linux import syscalls
from podwire.linux.cgroups.groups import KernelCgroups
from podwire.linux.errors import LinuxError
from podwire.linux.fs.mounts import KernelMounts
from podwire.linux.fs.paths import open_beneath
from podwire.linux.net.network import KernelNetwork
from podwire.linux.nft.table import KernelRuleset
from podwire.linux.proc import mount_namespaces
from podwire.linux.proc.namespaces import in_thread
from podwire.linux.values import Bridge, Veth
from podwire.runtime.images.build import BUSYBOX
from podwire.shim import HELP, ShimMissing, find_shim

CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
OPEN_FILES = 4096
INOTIFY = 128
SYS_RESOURCE = 24
"""The number of CAP_SYS_RESOURCE."""
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_CHROOT": 18, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}
"""The capabilities that nodes, pods and their networks need, by their numbers."""
PACKAGES = (
    *(
        "aiohttp",
        "cbor2",
        "cel_expr_python",
        "cryptography",
        "dnslib",
        "google.protobuf",
        "grpc",
        "jwt",
        "kubernetes_validate",
    ),
    *("msgspec", "nacl", "re2", "uvloop", "yaml"),
)
"""Modules of the packages that podwire needs at run time."""
OLDEST_KERNEL = (5, 10)
FREE_BYTES = 100_000_000
"""Bytes that a cluster with a few pods writes."""
SUDO = "sudo podwire doctor"
CONTAINER = "root lacks rights here: start the container with `--privileged`, or use the host or a virtual machine"
INSTALL = f"`scripts/setup` in the source tree, else `{sys.executable} -m pip install podwire`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    name: str
    ok: bool
    needed: bool
    """Whether every cluster needs it."""
    detail: str = ""
    helps: str = ""
    """A command or change that helps."""


Check = Callable[[], Finding]


def _root() -> Finding:
    ok = os.geteuid() == 0
    return Finding(name="root", ok=ok, needed=True, detail=f"user {os.geteuid()}", helps="sudo podwire …")


def _capabilities() -> Finding:
    """Checks the rights that root has everywhere but in a container without privileges."""
    effective = _effective()
    missing = [name for name, number in CAPABILITIES.items() if not effective >> number & 1]
    detail = f"missing: {', '.join(missing)}" if missing else ""
    helps = SUDO if os.geteuid() != 0 else CONTAINER
    return Finding(name="capabilities", ok=not missing, needed=True, detail=detail, helps=helps)


def _effective() -> int:
    """Returns the effective capabilities of this process, as bits."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)


def _packages() -> Finding:
    """Checks that the Python packages are installed which commands import when they need them."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    detail = f"missing in {sys.prefix}: {', '.join(missing)}" if missing else f"in {sys.prefix}"
    return Finding(name="Python packages", ok=not missing, needed=True, detail=detail, helps=INSTALL)


def _space() -> Finding:
    """Checks the file systems of state, sockets and temporary files."""
    full = []
    for path in ("/var/lib", "/run", tempfile.gettempdir()):
        with contextlib.suppress(OSError):
            found = os.statvfs(path)
            free = found.f_bavail * found.f_frsize
            if free < FREE_BYTES or (found.f_files and not found.f_favail):
                full.append(f"{path} has {free / 1e6:.0f} MB and {found.f_favail} inodes left")
    helps = "free some space (`df -h`, `df -i`), or choose a --prefix on another file system"
    return Finding(name="disk space", ok=not full, needed=True, detail="; ".join(full), helps=helps)


def _writable() -> Finding:
    """Checks that state can be written where clusters keep it."""
    closed = [path for path in ("/var/lib", "/run") if os.statvfs(path).f_flag & os.ST_RDONLY]
    detail = f"read-only: {', '.join(closed)}" if closed else ""
    helps = "mount them read-write (`mount -o remount,rw PATH`), or choose a --prefix elsewhere"
    return Finding(name="writable directories", ok=not closed, needed=False, detail=detail, helps=helps)


def _system_calls() -> Finding:
    """Tries system calls that kernels before 5.10, and sandboxes of containers, do not have."""
    try:
        os.close(os.pidfd_open(os.getpid()))
        root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        try:
            os.close(open_beneath(root, "proc", os.O_PATH, symlinks=False))
        finally:
            os.close(root)
    except (LinuxError, OSError) as error:
        detail = f"pidfd_open or openat2: {error}"
        helps = "Linux 5.10 or newer; in a container, a newer seccomp profile or `--security-opt seccomp=unconfined`"
        return Finding(name="system calls", ok=False, needed=True, detail=detail, helps=helps)
    return Finding(name="system calls", ok=True, needed=True, detail="pidfd_open, openat2")


def _uplink() -> Finding:
    """Looks for a default route. Clusters work without a network; only registries are then out of reach."""
    routes = Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]
    ok = any(line.split()[1] == "00000000" for line in routes if len(line.split()) > 1)
    detail = "" if ok else "no default route: clusters work, but no image can be pulled"
    helps = "`podwire image import FILE`, `podwire image load NAME` and `podwire image build` need no network"
    return Finding(name="network", ok=ok, needed=False, detail=detail, helps=helps)


def _try(name: str, work: Callable[[], object], helps: str, *, needed: bool = True) -> Finding:
    try:
        in_thread(work)
    except (LinuxError, OSError) as error:
        if error.errno in (errno.EPERM, errno.EACCES):  # not the kernel's fault
            helps = SUDO if os.geteuid() != 0 else CONTAINER
        return Finding(name=name, ok=False, needed=needed, detail=_reason(error), helps=helps)
    return Finding(name=name, ok=True, needed=needed)


def _reason(error: OSError) -> str:
    if isinstance(error, LinuxError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def _guarded(name: str, check: Check) -> Check:
    """Returns the check; it reports a machine without /proc or /sys instead of failing."""

    def guarded() -> Finding:
        try:
            return check()
        except (LinuxError, OSError, ValueError, StopIteration) as error:
            reason = _reason(error) if isinstance(error, OSError) else str(error)
            return Finding(
                name=name,
                ok=False,
                needed=True,
                detail=reason,
                helps="mount /proc and /sys, as `podwire up` needs them",
            )

    return guarded


def _in_new_network(work: Callable[[KernelNetwork], None] = lambda _: None) -> Callable[[], None]:
    def run() -> None:
        syscalls.unshare(syscalls.NEWNET)
        with KernelNetwork() as network:
            work(network)

    return run


def _network_namespaces() -> Finding:
    return _try("network namespaces", _in_new_network(), "a kernel with CONFIG_NET_NS, and CAP_SYS_ADMIN")


def _pid_namespaces() -> Finding:
    work = partial(syscalls.unshare, syscalls.NEWPID)
    return _try("PID namespaces", work, "a kernel with CONFIG_PID_NS, and CAP_SYS_ADMIN")


def _veth() -> Finding:
    work = _in_new_network(lambda network: network.links.add(Veth("a", "b")))
    return _try("veth links", work, "modprobe veth")


def _bridge() -> Finding:
    work = _in_new_network(lambda network: network.links.add(Bridge("a")))
    return _try("bridges", work, "modprobe bridge")


def _nft() -> Finding:
    rules = "add table inet t\nadd chain inet t c { type nat hook postrouting priority srcnat; }\n"
    rules += "add rule inet t c masquerade\n"
    work = _in_new_network(lambda _: KernelRuleset().apply(rules))
    return _try("nftables with NAT", work, "apt install nftables; modprobe nft_masq nft_chain_nat")


def _overlay() -> Finding:
    def mount() -> None:
        with tempfile.TemporaryDirectory(prefix="podwire-doctor-") as directory:
            mount_namespaces.unshare_mounts()
            mounts = KernelMounts()
            mounts.set_propagation("/", "rprivate")
            directories = {name: Path(directory, name) for name in ("lower", "upper", "work", "merged")}
            for place in directories.values():
                place.mkdir()
            options = [f"{name}dir={directories[name]}" for name in ("lower", "upper", "work")]
            mounts.mount("overlay", directories["merged"], "overlay", options)
            mounts.unmount(directories["merged"])

    return _try("overlayfs", mount, "modprobe overlay; a /tmp that is not an overlay itself")


def _root_directory() -> Finding:
    """Checks that / is not that of a chroot: nodes enter mount namespaces, which leads out of one."""

    def compare() -> None:
        before = Path("/").stat()
        mount_namespaces.alone()
        mount_namespaces.enter(mnt="/proc/thread-self/ns/mnt")
        if not os.path.samestat(before, Path("/").stat()):
            raise OSError(errno.EXDEV, "this is a chroot, and nodes need the root of a mount namespace")

    return _try("root directory", compare, "systemd-nspawn --directory DIR, a privileged container, or pivot_root")


def _ipv6() -> Finding:
    ok = Path("/proc/net/if_inet6").exists()
    return Finding(
        name="IPv6", ok=ok, needed=False, detail="" if ok else "pods get IPv4 addresses only", helps="modprobe ipv6"
    )


def _cgroups() -> Finding:
    controllers = {name for tree in KernelCgroups().trees for name in tree.controllers}
    missing = [controller for controller in CONTROLLERS if controller not in controllers]
    detail = f"missing: {', '.join(missing)}" if missing else ""
    helps = "mount the cgroup file systems (systemd does), or boot with cgroup_enable=memory"
    return Finding(name="cgroup controllers", ok=not missing, needed=not controllers, detail=detail, helps=helps)


def _devices() -> Finding:
    ok = KernelCgroups().limits_devices
    detail = "" if ok else "containers with the capability MKNOD or with devices are refused"
    helps = "mount a version 2 tree, or `mount -t cgroup -o devices cgroup /sys/fs/cgroup/devices`"
    return Finding(name="device cgroup", ok=ok, needed=False, detail=detail, helps=helps)


def _oci_runtime() -> Finding:
    path = shutil.which("crun") or shutil.which("runc")
    return Finding(name="crun or runc", ok=bool(path), needed=True, detail=path or "", helps="apt install crun")


def _program(name: str, package: str, why: str) -> Check:
    def check() -> Finding:
        path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        return Finding(name=name, ok=bool(path), needed=False, detail=path or why, helps=f"apt install {package}")

    return check


def _shim() -> Finding:
    try:
        return Finding(name="podwire-shim", ok=True, needed=True, detail=str(find_shim()))
    except ShimMissing:
        return Finding(name="podwire-shim", ok=False, needed=True, detail="no container can be started", helps=HELP)


def _busybox() -> Finding:
    ok = BUSYBOX.exists()
    detail = str(BUSYBOX) if ok else "no image is built for the first pod"
    return Finding(name="busybox", ok=ok, needed=False, detail=detail, helps="apt install busybox-static")


def _open_files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ok = hard in (resource.RLIM_INFINITY, -1) or hard >= OPEN_FILES
    return Finding(name="open files", ok=ok, needed=False, detail=f"at most {hard}", helps=f"ulimit -Hn {OPEN_FILES}")


def _inotify() -> Finding:
    number = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text(encoding="ascii"))
    helps = f"sysctl -w fs.inotify.max_user_instances={4 * INOTIFY}"
    return Finding(
        name="inotify instances", ok=number >= INOTIFY, needed=False, detail=f"at most {number}", helps=helps
    )


def _sys_resource() -> Finding:
    ok = bool(_effective() >> SYS_RESOURCE & 1)
    detail = "" if ok else "OOM scores of pods and open-file limits cannot be changed"
    return Finding(name="CAP_SYS_RESOURCE", ok=ok, needed=False, detail=detail, helps="run on a host that grants it")


def _forwarding() -> Finding:
    on = Path("/proc/sys/net/ipv4/ip_forward").read_text(encoding="ascii").strip() == "1"
    detail = "" if on else "off; `podwire up` turns it on"
    return Finding(name="IP forwarding", ok=on, needed=False, detail=detail, helps="sysctl -w net.ipv4.ip_forward=1")


def _kernel() -> Finding:
    release = os.uname().release
    found = re.match(r"(\d+)\.(\d+)", release)
    ok = found is not None and (int(found[1]), int(found[2])) >= OLDEST_KERNEL
    oldest = ".".join(map(str, OLDEST_KERNEL))
    detail = release if ok else f"{release} is older than {oldest}, the oldest that is tried"
    return Finding(name="kernel", ok=ok, needed=False, detail=detail, helps=f"boot Linux {oldest} or newer")


_ALL: tuple[tuple[str, Check], ...] = (
    ("root", _root),
    ("capabilities", _capabilities),
    ("kernel", _kernel),
    ("system calls", _system_calls),
    ("Python packages", _packages),
    ("disk space", _space),
    ("writable directories", _writable),
    ("network namespaces", _network_namespaces),
    ("PID namespaces", _pid_namespaces),
    ("veth links", _veth),
    ("bridges", _bridge),
    ("nftables with NAT", _nft),
    ("root directory", _root_directory),
    ("overlayfs", _overlay),
    ("cgroup controllers", _cgroups),
    ("device cgroup", _devices),
    ("crun or runc", _oci_runtime),
    ("IPv6", _ipv6),
    ("IP forwarding", _forwarding),
    ("network", _uplink),
    ("kubectl", _program("kubectl", "kubernetes-client", "optional, but recommended")),
    ("podwire-shim", _shim),
    ("busybox", _busybox),
    ("open files", _open_files),
    ("inotify instances", _inotify),
    ("CAP_SYS_RESOURCE", _sys_resource),
)

CHECKS: Mapping[str, Check] = {name: _guarded(name, check) for name, check in _ALL}
"""All checks by their names, the most basic first."""
