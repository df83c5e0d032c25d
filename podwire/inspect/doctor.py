"""Checks what this machine has of what a cluster needs; each feature is tried, without leaving anything behind."""

import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from podwire.linux import syscalls
from podwire.linux.cgroups.groups import KernelCgroups
from podwire.linux.errors import LinuxError
from podwire.linux.fs.mounts import KernelMounts
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


def examine() -> list[Finding]:
    """Runs all checks, the most basic first."""
    return [check() for check in CHECKS]


def _root() -> Finding:
    ok = os.geteuid() == 0
    return Finding(name="root", ok=ok, needed=True, detail=f"user {os.geteuid()}", helps="sudo podwire …")


def _try(name: str, work: Callable[[], object], helps: str, *, needed: bool = True) -> Finding:
    try:
        in_thread(work)
    except (LinuxError, OSError) as error:
        return Finding(name=name, ok=False, needed=needed, detail=str(error), helps=helps)
    return Finding(name=name, ok=True, needed=needed)


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
    status = Path("/proc/self/status").read_text(encoding="ascii")
    effective = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    ok = bool(effective >> SYS_RESOURCE & 1)
    detail = "" if ok else "OOM scores of pods and open-file limits cannot be changed"
    return Finding(name="CAP_SYS_RESOURCE", ok=ok, needed=False, detail=detail, helps="run on a host that grants it")


def _forwarding() -> Finding:
    on = Path("/proc/sys/net/ipv4/ip_forward").read_text(encoding="ascii").strip() == "1"
    detail = "" if on else "off; `podwire up` turns it on"
    return Finding(name="IP forwarding", ok=on, needed=False, detail=detail, helps="sysctl -w net.ipv4.ip_forward=1")


def _kernel() -> Finding:
    release = os.uname().release
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2])
    return Finding(name="kernel", ok=numbers >= (5, 10), needed=False, detail=release, helps="Linux 5.10 or newer")


CHECKS: tuple[Check, ...] = (
    _root,
    _kernel,
    _network_namespaces,
    _pid_namespaces,
    _veth,
    _bridge,
    _nft,
    _overlay,
    _cgroups,
    _devices,
    _oci_runtime,
    _ipv6,
    _forwarding,
    _program("kubectl", "kubernetes-client", "optional, but recommended"),
    _shim,
    _busybox,
    _open_files,
    _inotify,
    _sys_resource,
)
