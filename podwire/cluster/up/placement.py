"""Decides whether a node can run on the host itself: only where no other program uses its paths and ports."""

import errno
import socket
from pathlib import Path

from podwire.cluster.up.conflist import foreign as foreign_conflists
from podwire.cluster.up.slots import KUBELET_PORT

SOCKETS = {
    "containerd": "run/containerd/containerd.sock",
    "CRI-O": "run/crio/crio.sock",
    "an NRI runtime": "run/nri/nri.sock",
}


def owners(root: Path = Path("/"), kubelet_port: int = KUBELET_PORT) -> list[str]:
    """Returns who uses the paths and ports of the host; none, and the node can have them."""
    users = [
        f"the network configuration {foreign_conflist}"
        for foreign_conflist in foreign_conflists(root / "etc/cni/net.d")
    ]
    users += [f"{name} at {root / path}" for name, path in SOCKETS.items() if answers(root / path)]
    kubelet = root / "var/lib/kubelet"
    if kubelet.is_dir() and any(kubelet.iterdir()):
        users.append(f"a kubelet's {kubelet}")
    if not port_is_free(kubelet_port):
        users.append(f"a listener on port {kubelet_port}")
    return users


def answers(path: Path) -> bool:
    """Whether a process listens on a unix socket; a stale socket file does not count."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    try:
        with socket.create_server((host, port)):
            return True
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise
