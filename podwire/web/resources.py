"""Addresses, claims, slices, devices and NRI plugins, as the API server, the nodes and the records know them."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from podwire.cluster.up.layout import Layout
from podwire.cluster.up.state import NodeRecord
from podwire.linux.errors import LinuxError
from podwire.linux.proc import processes
from podwire.nri.adaptation.settings import Settings
from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object
from podwire.trace.plain_text import plain
from podwire.trace.pod_trace import PodTrace, Turn

CLAIMS, SLICES = (BUILTIN["resource.k8s.io/v1", kind] for kind in ("ResourceClaim", "ResourceSlice"))
NODES = BUILTIN["v1", "Node"]
POOLS_SECONDS = 10.0
MOST_CALLS = 12
"""Last calls of an NRI plugin that are shown."""
_USUAL = ("cpu", "memory", "pods", "ephemeral-storage")


async def claims(client: Client) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    for claim in await _listed(client, CLAIMS):
        status = claim.get("status") or {}
        allocation = status.get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        rows.append(
            {
                "key": plain(f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"),
                "devices": [plain(f"{row.get('driver')}/{row.get('pool')}/{row.get('device')}") for row in results],
                "reserved": [plain(str(row.get("name"))) for row in status.get("reservedFor") or ()],
                "state": "allocated" if allocation else "pending",
            }
        )
    return rows


async def slices(client: Client) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    for slice_ in await _listed(client, SLICES):
        spec = slice_["spec"]
        rows.append(
            {
                "driver": plain(str(spec.get("driver"))),
                "node": plain(str(spec.get("nodeName") or "")),
                "pool": plain(str((spec.get("pool") or {}).get("name"))),
                "devices": [plain(str(device.get("name"))) for device in spec.get("devices") or ()],
            }
        )
    return rows


async def device_resources(client: Client) -> list[Mapping[str, Any]]:
    """Returns what device plugins offer: the extended resources of each node."""
    return [
        {"node": plain(node["metadata"]["name"]), "resource": plain(name), "allocatable": plain(str(count))}
        for node in (await client.list(NODES)).items
        for name, count in sorted(((node.get("status") or {}).get("allocatable") or {}).items())
        if name not in _USUAL and not name.startswith("hugepages-")
    ]


async def _listed(client: Client, kind: Any) -> Iterable[Object]:
    try:
        return (await client.list(kind)).items
    except ApiError as error:
        if error.code == 404:  # a cluster without dynamic resource allocation
            return ()
        raise


def pools(layout: Layout, record: NodeRecord) -> Mapping[str, Any]:
    """Returns the address pools of a node, as `podwire cni pools` on the node shows them."""
    node, command = record.name, [sys.executable, "-m", "podwire.cli.main"]
    words = [*command, "cni", "pools", "--output", "json"]
    if record.own:
        words = [*command, "node", "exec", "--prefix", str(layout.prefix), node, "--", *words]
    try:
        done = processes.run(words, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, deadline=POOLS_SECONDS)
    except LinuxError as error:
        return {"node": plain(node), "error": plain(str(error)), "pools": []}
    if done.code:
        return {"node": plain(node), "error": plain(done.stderr.decode("utf-8", "replace")[-300:]), "pools": []}
    return {"node": plain(node), "error": "", "pools": msgspec.json.decode(done.stdout)}


def nri_plugins(traces: Iterable[PodTrace]) -> list[Mapping[str, Any]]:
    """Returns the NRI plugins that were called for these pods, with their time budget and last calls."""
    calls: dict[str, list[tuple[float, Mapping[str, Any]]]] = defaultdict(list)
    for trace in traces:
        failed = {arrow.id for arrow in trace.arrows if arrow.failed}
        for arrow in trace.arrows:
            if arrow.turn is Turn.CALL and arrow.method.startswith("NRI "):
                call = {
                    "pod": trace.pod,
                    "key": plain(f"{trace.namespace}/{trace.name}"),
                    "id": arrow.id,
                    "method": plain(arrow.method),
                    "took": arrow.took,
                    "failed": arrow.id in failed,
                }
                calls[arrow.callee].append((arrow.time, call))
    budget = Settings().request_timeout
    rows: list[Mapping[str, Any]] = []
    for plugin, own in sorted(calls.items()):
        last = [call for _, call in sorted(own, key=lambda entry: entry[0])]
        rows.append(
            {
                "plugin": plain(plugin),
                "budget": budget,
                "calls": len(last),
                "slowest": max((call["took"] or 0.0 for call in last), default=0.0),
                "last": last[-MOST_CALLS:],
            }
        )
    return rows
