"""Removes from a node what a component that ran as a DaemonSet left there: state, sockets, CDI files.

A DaemonSet that is deleted can no longer clean up. So a component is removed in two steps: its DaemonSet is replaced
by one whose pods run the component's removal once and then wait (`removing`), and then everything is deleted.
"""

import errno
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from podwire.cniplugins import nft_tables
from podwire.cniplugins.install import uninstall
from podwire.deviceplugin.config import DOMAIN
from podwire.deviceplugin.records import PoolRecords
from podwire.dradriver.names import DRIVER

Object = dict[str, Any]
HOST = "/host"
"""The root directory of the node in pods of `removing`."""
_WAIT = "trap 'exit 0' TERM; echo removed from this node; while :; do sleep 60 & wait $!; done"


_CNI_STATE = "/var/lib/podwire/cni"
_PROGRAMS = "bin"
"""The directory of the hook's program, beside the pools."""


class InUse(Exception):
    """Pods still use devices of the component; what they need was not removed."""


def removing(daemon_set: Object, command: Sequence[str]) -> Object:
    """Returns a DaemonSet with the same name and selector whose pods run `command` once, and then are ready. Pure."""
    spec = daemon_set["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    mount = {"name": "host", "mountPath": HOST, "mountPropagation": "HostToContainer"}
    once = {
        "name": "remove",
        "image": container["image"],
        "imagePullPolicy": container["imagePullPolicy"],
        "command": list(command),
        "securityContext": {"privileged": True},
        "volumeMounts": [*(mount for mount in container["volumeMounts"] if mount["name"] == "netns"), mount],
    }
    done = {
        "name": "removed",
        "image": container["image"],
        "imagePullPolicy": container["imagePullPolicy"],
        "command": ["sh", "-c", _WAIT],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    volumes = [volume for volume in pod["volumes"] if volume["name"] == "netns"]
    new_pod = {
        **pod,
        "initContainers": [once],
        "containers": [done],
        "volumes": [*volumes, {"name": "host", "hostPath": {"path": "/", "type": "Directory"}}],
    }
    # No surge: the old pod of a node has ended before the new one removes what it used.
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}
    template = {**spec["template"], "spec": new_pod}
    return {**daemon_set, "spec": {**spec, "updateStrategy": strategy, "template": template}}


def remove_network_driver(*, state: Path, kubelet: Path) -> list[Path]:
    """Removes the driver's state and its directory below the kubelet's. Raises InUse, OSError."""
    records = state / "records"
    files = records.iterdir() if records.is_dir() else ()
    claims = sorted(path.name for path in files if not path.name.startswith("."))
    if claims:
        raise InUse(f"claims are prepared on this node: delete their pods first ({', '.join(claims[:5])})")
    return _remove((state, kubelet / "plugins" / DRIVER))


def remove_device_plugin(*, state: Path, cdi: Path) -> list[Path]:
    """Removes the plugin's records and CDI files. Raises InUse, OSError."""
    directories = [path for path in state.iterdir() if path.is_dir()] if state.is_dir() else []
    pools = [path.name for path in directories if path.name != _PROGRAMS]
    taken = [
        f"{pool}/{device}" for pool in pools for device, record in PoolRecords(state, pool).read().items() if record.out
    ]
    if taken:
        raise InUse(f"pods have devices of this node: delete these pods first ({', '.join(sorted(taken)[:5])})")
    return _remove((state, *sorted(cdi.glob(f"{DOMAIN}-*@*.json"))))


def remove_cni_plugins(*, root: Path, directory: Path, socket: Path, network: Path | None) -> list[Path]:
    """Removes plugins, a network configuration, and directories and nft tables that are empty then.

    Raises OtherDaemon, OSError, LinuxError.

    The configuration goes first, so that no runtime calls plugins that are gone. Leases and records of attachments
    stay while there are any: only DEL, `podwire cni release-dead` or `hand-over` may end them.
    """
    removed = _remove([] if network is None else [_below(root, network)])
    removed += [Path(path) for path in uninstall(str(_below(root, directory)), socket=str(socket))]
    for path in (_below(root, socket.parent), _below(root, Path(_CNI_STATE))):
        if path.is_dir() and not any(file for file in path.rglob("*") if not file.is_dir()):
            removed += _remove([path])
    nft_tables.remove_unused()
    return removed


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _remove_tree(path: Path) -> None:
    """Removes a directory; one that is a mount point of the host is emptied, and stays."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        if error.errno != errno.EBUSY or not path.is_mount():
            raise


def _remove(paths: Iterable[Path]) -> list[Path]:
    removed = []
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            _remove_tree(path)
        elif path.exists() or path.is_symlink():
            path.unlink()
        else:
            continue
        removed.append(path)
    return removed
