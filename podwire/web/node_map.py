"""The node as a map: its links, addresses, routes and rules, and the namespaces of its pods. Read from the kernel."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from podwire.cluster.up.layout import Layout
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.inspect.pod_namespaces import Namespace, RuntimeDown, pod_namespaces, read_namespace
from podwire.linux.errors import LinuxError
from podwire.linux.net.routes import describe
from podwire.linux.nft.table import KernelRuleset
from podwire.linux.values import Link
from podwire.nriplugins.network.policy.values import Pod
from podwire.trace.plain_text import plain

MOST_RULES = 400_000
"""Characters of all rules together."""
_TABLE = re.compile(r"^table (\S+ \S+) \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)


def netns_of(layout: Layout, node: str) -> Path | None:
    """Returns the network namespace of a node; None for a node on the host itself."""
    own = NodeNamespaces(layout, node)
    return own.net if own.exists() else None


def node_map(layout: Layout, node: str, pods: Sequence[Pod]) -> Mapping[str, Any]:
    """Raises LinuxError. `pods` are those of the node."""
    netns = netns_of(layout, node)
    notes = []
    try:
        spaces = list(pod_namespaces(layout, node))
    except RuntimeDown as error:
        spaces = []
        notes.append(str(error))
    own = read_namespace(netns)
    try:
        rules = KernelRuleset(netns).text()
    except LinuxError as error:
        rules = ""
        notes.append(f"rules cannot be read: {error}")
    if len(rules) > MOST_RULES:
        notes.append(f"only the first {MOST_RULES} characters of {len(rules)} of the rules are shown")
    return {
        "node": plain(node),
        "where": "in its own namespaces" if netns is not None else "on the host itself",
        "notes": notes,
        "namespace": _namespace(own),
        "pods": [{**_namespace(space), "pod": _owner(space, pods)} for space in spaces],
        "wires": _wires(own, spaces),
        "rules": [
            {"table": plain(name), "text": body.strip("\n")} for name, body in _TABLE.findall(rules[:MOST_RULES])
        ],
    }


def _namespace(space: Namespace) -> Mapping[str, Any]:
    names = {link.ifindex: link.name for link in space.links}
    addresses: dict[int, list[str]] = {}
    for address in space.addresses:
        addresses.setdefault(address.ifindex, []).append(str(address.interface))
    return {
        "name": plain(space.path.name),
        "links": [
            {
                "index": link.ifindex,
                "name": plain(link.name),
                "kind": link.kind or "device",
                "state": link.state if link.up else "down",
                "mac": link.mac,
                "mtu": link.mtu,
                "master": plain(names.get(link.master, "")),
                "owner": plain(link.alias),
                "addresses": addresses.get(link.ifindex, []),
            }
            for link in space.links
        ],
        "routes": [plain(f"{describe(route)} dev {names.get(route.ifindex, route.ifindex)}") for route in space.routes],
    }


def _owner(space: Namespace, pods: Iterable[Pod]) -> str:
    ips = {address.interface.ip for address in space.addresses}
    return next((plain(str(pod)) for pod in pods if ips & set(pod.ips)), "")


def _wires(own: Namespace, spaces: Sequence[Namespace]) -> list[Mapping[str, Any]]:
    """Returns the veth pairs between the node and its pods."""
    return [
        {"outer": plain(outer.name), "inner": plain(inner.name), "space": plain(space.path.name)}
        for space in spaces
        for inner in space.links
        for outer in own.links
        if peers(outer, inner)
    ]


def peers(outer: Link, inner: Link) -> bool:
    """Whether two links of different namespaces are the ends of one veth pair.

    Each end has the index of the other. Two namespaces may use the same numbers; MAC addresses do not tell, but a peer
    of a link of ours is in another namespace.
    """
    if outer.kind != "veth" or inner.kind != "veth" or outer.peer_netns is None:
        return False
    return (outer.ifindex, outer.peer) == (inner.peer, inner.ifindex)
