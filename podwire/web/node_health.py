"""Says how a node is, in one row. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from podwire.trace.plain_text import cut, plain

LONGEST = 400


class NodeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    ready: bool
    why: str = ""
    """Why it is not ready, or which pressure it has."""
    addresses: tuple[str, ...] = ()
    pod_ranges: tuple[str, ...] = ()
    runtime: str = ""
    kubelet: str = ""
    pods: int = 0
    """How many pods it can have."""
    unschedulable: bool = False


def row(node: Mapping[str, Any]) -> NodeRow:
    metadata, spec, status = (_map(node.get(name)) for name in ("metadata", "spec", "status"))
    conditions = {str(entry.get("type")): entry for entry in map(_map, status.get("conditions") or ())}
    ready = conditions.pop("Ready", {})
    bad = [] if ready.get("status") == "True" else [ready]
    bad += [entry for entry in conditions.values() if entry.get("status") == "True"]
    why = " · ".join(f"{entry.get('reason') or 'NotReady'}: {entry.get('message') or ''}" for entry in bad)
    info = _map(status.get("nodeInfo"))
    capacity = str(_map(status.get("allocatable")).get("pods") or "0")
    return NodeRow(
        name=plain(str(metadata.get("name", ""))),
        ready=ready.get("status") == "True",
        why=cut(plain(why), LONGEST),
        addresses=tuple(plain(str(entry.get("address"))) for entry in map(_map, status.get("addresses") or ())),
        pod_ranges=tuple(plain(str(range_)) for range_ in spec.get("podCIDRs") or ()),
        runtime=plain(str(info.get("containerRuntimeVersion") or "")),
        kubelet=plain(str(info.get("kubeletVersion") or "")),
        pods=int(capacity) if capacity.isdecimal() else 0,
        unschedulable=bool(spec.get("unschedulable")),
    )


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
