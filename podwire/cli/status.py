"""`podwire status`: shows the state of a cluster."""

import argparse
import json
import time

from podwire.cli.main import UserError
from podwire.cli.options import add_output, add_prefix
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.cluster.up.state import BrokenState
from podwire.cluster.up.status import Status, as_json, status
from podwire.durable.records import NewerFormat


def configure(parser: argparse.ArgumentParser) -> None:
    add_prefix(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if the cluster is up."""
    try:
        cluster = status(layout_of(arguments.prefix))
    except (BadPrefix, NewerFormat, BrokenState, OSError) as error:
        raise UserError(str(error)) from error
    if arguments.output == "json":
        print(json.dumps(as_json(cluster), indent=2))
    else:
        _show(cluster)
    return 0 if cluster.state == "up" else 1


def _show(cluster: Status) -> None:
    if cluster.state == "absent":
        print(f"no cluster below {cluster.prefix}; `podwire up` creates one")
        return
    print(f"{cluster.state:10} cluster below {cluster.prefix}, slot {cluster.slot}")
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
