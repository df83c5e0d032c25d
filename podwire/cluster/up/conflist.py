"""The default network of a node's pods: our own plugins, on the node's own ranges."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podwire.cluster.up.slots import Network
from podwire.cniplugins.install import install
from podwire.durable.files import write_durably
from podwire.runtime.cni.conflists import ENDINGS

NAME = "10-podwire.conflist"
PODS_BRIDGE = "podwire0"
_ANYWHERE = {4: "0.0.0.0/0", 6: "::/0"}


def network(ranges: Sequence[Network], mtu: int = 0) -> dict[str, Any]:
    """Returns a bridge with a gateway, masquerading, leases below our state directory, and host ports.

    The spoof checks prevent a pod from using addresses of others. Without an MTU, pods have that of the bridge.
    """
    return {
        "cniVersion": "1.0.0",  # for containerd 1.6, which ignores the list; our runtime takes the newest
        "cniVersions": ["1.0.0", "1.1.0"],
        "name": "podwire",
        "plugins": [
            {
                "type": "bridge",
                "bridge": PODS_BRIDGE,
                "isGateway": True,
                "ipMasq": True,
                "hairpinMode": True,
                **({"mtu": mtu} if mtu else {}),
                "macspoofchk": True,
                "ipspoofchk": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": str(range_)}] for range_ in ranges],
                    "routes": [{"dst": _ANYWHERE[range_.version]} for range_ in ranges],
                    "dataDir": "/var/lib/podwire/cni/networks",
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def foreign(directory: Path) -> list[Path]:
    """Returns network configurations that are not ours."""
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.suffix in ENDINGS and path.name != NAME)


def write(directory: Path, ranges: Sequence[Network], mtu: int = 0) -> None:
    """Writes ours, unless a foreign one exists."""
    if foreign(directory):
        return
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    text = json.dumps(network(ranges, mtu), indent=2) + "\n"
    path = directory / NAME
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_durably(path, text.encode(), mode=0o644)


def put_plugins(directory: Path) -> None:
    """Installs our plugins into a directory of our own."""
    install(str(directory), force=True)
