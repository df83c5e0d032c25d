"""Network partitions: for a while, no packet passes between a node and the control plane.

The control plane has the addresses of the host on the bridge to the nodes. Packets are dropped in the network namespace
of the node, in both directions, those of its pods and of Services too; nodes still reach each other.
"""

from pathlib import Path

from podwire.cluster.up.slots import Interface
from podwire.linux.nft.table import KernelRuleset

TABLE = "podwire_chaos"
_IP = {4: "ip", 6: "ip6"}


def ruleset(control_plane: tuple[Interface, ...]) -> str:
    """Returns the nft rules. Destinations are compared after NAT, so that the Service `kubernetes` is cut off, too."""
    lines = [
        f"add table inet {TABLE}",
        f"add chain inet {TABLE} arriving {{ type filter hook prerouting priority raw; }}",
        f"add chain inet {TABLE} leaving {{ type filter hook postrouting priority srcnat + 10; }}",
    ]
    for address in control_plane:
        lines.append(f"add rule inet {TABLE} arriving {_IP[address.version]} saddr {address.ip} drop")
        lines.append(f"add rule inet {TABLE} leaving {_IP[address.version]} daddr {address.ip} drop")
    return "\n".join([*lines, ""])


def cut_off(netns: Path, control_plane: tuple[Interface, ...]) -> None:
    """Raises LinuxError."""
    KernelRuleset(netns).apply(ruleset(control_plane))


def reconnect(netns: Path) -> None:
    """Does nothing on a node that is connected. Raises LinuxError."""
    KernelRuleset(netns).delete_table(TABLE)
