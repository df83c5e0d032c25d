"""`podwire status`: how a cluster is."""

import argparse
import json
import time
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.cluster.up.state import BrokenState, NewerState
from podwire.cluster.up.status import Status, as_json, status


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prefix", type=Path, default=Path("/"), metavar="DIR", help="the directory below which everything is kept (/)"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    """0 when it is up."""
    try:
        found = status(layout_of(arguments.prefix))
    except (BadPrefix, NewerState, BrokenState, OSError) as error:
        raise UserError(str(error)) from error
    if arguments.output == "json":
        print(json.dumps(as_json(found), indent=2))
    else:
        _show(found)
    return 0 if found.state == "up" else 1


def _show(found: Status) -> None:
    if found.state == "absent":
        print(f"there is no cluster below {found.prefix}; `podwire up` makes one")
        return
    print(f"{found.state:10} cluster below {found.prefix}, slot {found.slot}")
    for node in found.nodes:
        place = "in namespaces of its own" if node.namespaces else "on the host itself"
        print(f"node       {node.name}, {place}, kubelet port {found.kubelet_port}, runtime {found.runtime}")
    print(f"server     {found.api_server}")
    print(f"kubeconfig {found.kubeconfig}")
    if not found.components:
        return
    rows = [("COMPONENT", "STATE", "PID", "UP", "RESTARTS", "MEMORY")]
    now = time.time()
    for component in found.components:
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
    print(f"\nall together {sum(component.memory_bytes for component in found.components) / 1e6:.1f}MB")
