"""Whether a node can live on the host itself: only where nobody else has what a node needs there."""

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


def owners(root: Path = Path("/")) -> list[str]:
    """Who is there already, in words: none, and the node can have the host's own paths and ports."""
    found = [
        f"the network configuration {foreign_conflist}"
        for foreign_conflist in foreign_conflists(root / "etc/cni/net.d")
    ]
    found += [f"{name} at {root / path}" for name, path in SOCKETS.items() if answers(root / path)]
    kubelet = root / "var/lib/kubelet"
    if kubelet.is_dir() and any(kubelet.iterdir()):
        found.append(f"a kubelet's {kubelet}")
    if not port_is_free(KUBELET_PORT):
        found.append(f"whoever listens on port {KUBELET_PORT}")
    return found


def answers(path: Path) -> bool:
    """Whether somebody listens on a unix socket; one that a dead process left does not count."""
    with socket.socket(socket.AF_UNIX) as door:
        return door.connect_ex(str(path)) == 0


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    try:
        with socket.create_server((host, port)):
            return True
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise
