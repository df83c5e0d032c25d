"""Computes a resource's status from the pods of this node and the entries of other nodes. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from podwire.nriplugins.network import mesh, routes
from podwire.nriplugins.network.kinds import ROUTES
from podwire.nriplugins.network.resources import Broken
from podwire.nriplugins.network.sandbox import Sandbox
from podwire.protocols.k8sapi.watch import Object, metadata

MOST_FAILED, LONGEST_MESSAGE = 256, 1024
"""Limits of the CRD: failures of a node, and characters of a message."""
READY = "Ready"


class Report(NamedTuple):
    """The pods of one node that a resource selects."""

    pods: int
    failed: tuple[tuple[str, str, str], ...] = ()
    """Pod, reason, message."""

    def entry(self, node: str) -> dict[str, Any]:
        rows = [
            {"pod": pod, "reason": reason, "message": text[:LONGEST_MESSAGE]}
            for pod, reason, text in self.failed[:MOST_FAILED]
        ]
        return {"name": node, "pods": self.pods, "failures": rows}


def report_of(object_: Object, sandboxes: Iterable[Sandbox]) -> Report:
    uid = metadata(object_).get("uid")
    mine = [sandbox for sandbox in sandboxes if uid in sandbox.selected_by]
    failed = [
        (sandbox.name, trouble.why.value, f"{trouble.field}: {trouble.reason}" if trouble.field else trouble.reason)
        for sandbox in mine
        for trouble in sandbox.problems
        if trouble.resource.uid == uid
    ]
    return Report(len(mine), tuple(sorted(set(failed))))


def status_of(object_: Object, node: str, report: Report, now: str) -> dict[str, Any] | None:
    """The whole status; None when it is up to date."""
    old: Mapping[str, Any] = object_.get("status") or {}
    nodes = [entry for entry in old.get("nodes") or () if entry.get("name") != node]
    if report.pods:
        nodes = sorted([*nodes, report.entry(node)], key=lambda entry: str(entry["name"]))
    status = {
        "observedGeneration": metadata(object_).get("generation", 0),
        "pods": _pods(nodes),
        "failed": sum(len({row["pod"] for row in entry.get("failures") or ()}) for entry in nodes),
        "nodes": nodes,
        "conditions": _conditions(object_, nodes, old.get("conditions") or [], now),
    }
    return None if status == old else status


def _pods(nodes: Iterable[Mapping[str, Any]]) -> int:
    return sum(int(node.get("pods", 0)) for node in nodes)


def _conditions(object_: Object, nodes: list[Any], old: Iterable[Any], now: str) -> list[dict[str, Any]]:
    status, reason, message = _ready(object_, nodes)
    fresh = {
        "type": READY,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": metadata(object_).get("generation", 0),
    }
    before = next((dict(condition) for condition in old if condition.get("type") == READY), {})
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    others = [dict(condition) for condition in old if condition.get("type") != READY]
    return [*others, {**fresh, "lastTransitionTime": since or now}]


def _ready(object_: Object, nodes: list[Any]) -> tuple[str, str, str]:
    read = (routes.read if object_.get("kind") == ROUTES.kind else mesh.read)(object_)
    if isinstance(read, Broken):
        return "False", "Invalid", "; ".join(f"{error.field}: {error.body}" for error in read.errors)
    failures = [(node["name"], row) for node in nodes for row in node.get("failures") or ()]
    if not failures:
        return "True", "Applied", f"pods: {_pods(nodes)}"
    name, row = failures[0]
    more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
    return "False", str(row["reason"]), f"pod {row['pod']} on {name}: {row['message']}{more}"
