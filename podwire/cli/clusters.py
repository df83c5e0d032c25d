"""`podwire clusters`: lists the clusters of this machine."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from podwire.cli.options import add_output, chosen_prefix
from podwire.cli.terminal import paint
from podwire.cluster.up.named_clusters import ClusterEntry, clusters
from podwire.cluster.up.slot_claims import SlotClaims

COLOURS = {"up": "green", "starting": "yellow", "stopped": "yellow", "damaged": "red", "newer": "red"}


def configure(parser: argparse.ArgumentParser) -> None:
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    entries = clusters(SlotClaims())
    if arguments.output == "json":
        print(json.dumps([msgspec.to_builtins(entry) for entry in entries], indent=2))
    elif entries:
        show(entries)
    else:
        print("no clusters on this machine; `podwire up --name NAME` creates one")
    return 0


def show(entries: Sequence[ClusterEntry]) -> None:
    """Prints a table; * marks the cluster that commands without --name and --prefix mean."""
    chosen = str(chosen_prefix() or Path("/"))
    rows = [("", "NAME", "STATE", "NODES", "API SERVER", "PREFIX")]
    for entry in entries:
        mark = "*" if entry.prefix == chosen else ""
        nodes = str(entry.nodes or "-")
        rows.append((mark, entry.name or "-", entry.state, nodes, entry.api_server or "-", entry.prefix))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        if number:
            cells[2] = paint(cells[2], COLOURS.get(row[2], "dim"))
        print("  ".join(cells).rstrip())
    if any(entry.state == "unknown" for entry in entries):
        print("the state of a cluster is known to root: `sudo podwire clusters`")
