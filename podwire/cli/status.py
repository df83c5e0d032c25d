"""`podwire status`: shows the state of a cluster."""

import argparse
import json
import time
from pathlib import Path

import msgspec

from podwire.cli import clusters
from podwire.cli.main import UserError
from podwire.cli.options import add_output, add_prefix, cluster_flag
from podwire.cli.terminal import paint
from podwire.cluster.up import named_clusters
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.state import BrokenState
from podwire.cluster.up.status import Status, as_json, status
from podwire.durable.records import NewerFormat


def configure(parser: argparse.ArgumentParser) -> None:
    add_prefix(parser, unset=None)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if the cluster is up. Without a choice, it is the default one; if there is none, all are listed."""
    try:
        cluster = status(layout_of(arguments.prefix or Path("/")))
        others = named_clusters.clusters(SlotClaims()) if arguments.prefix is None else []
    except (BadPrefix, NewerFormat, BrokenState, OSError) as error:
        raise UserError(str(error)) from error
    others = [entry for entry in others if entry.prefix != cluster.prefix]
    if arguments.output == "json":
        more = {"others": [msgspec.to_builtins(entry) for entry in others]} if others else {}
        print(json.dumps(as_json(cluster) | more, indent=2))
    elif others and cluster.state == "absent":
        clusters.show(others)
        return 0 if any(entry.state == "up" for entry in others) else 1
    else:
        _show(cluster)
        if others:
            print("\nother clusters of this machine:")
            clusters.show(others)
    return 0 if cluster.state == "up" else 1


def _show(cluster: Status) -> None:
    if cluster.state == "absent":
        flag = cluster_flag(Path(cluster.prefix))
        print(f"no cluster below {cluster.prefix}; `podwire up --detach{flag}` creates one")
        return
    colour = clusters.COLOURS.get(cluster.state, "dim")
    print(f"{paint(f'{cluster.state:10}', colour)} cluster below {cluster.prefix}, slot {cluster.slot}")
    for node in cluster.nodes:
        place = "in its own namespaces" if node.namespaces else "on the host itself"
        print(f"node       {node.name}, {place}, kubelet port {cluster.kubelet_port}, runtime {cluster.runtime}")
    print(f"server     {cluster.api_server}")
    print(f"kubeconfig {cluster.kubeconfig}")
    if not cluster.components:
        return
    rows = [("COMPONENT", "STATE", "PID", "UP", "RESTARTS", "MEMORY")]
    now = time.time()
    for component in cluster.components:
        age = f"{now - component.since:.0f}s"
        rows.append(
            (
                component.name,
                component.state,
                str(component.pid),
                age,
                str(component.restarts),
                f"{component.memory_bytes / 1e6:.1f}MB",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print()
    for row in rows:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"\ntotal {sum(component.memory_bytes for component in cluster.components) / 1e6:.1f}MB")
