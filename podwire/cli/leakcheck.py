"""`podwire leakcheck`: what podwire left on this host that no pod explains."""

import argparse
import json
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cluster.up.layout import Layout
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.inspect import cluster_leftovers
from podwire.inspect.leakcheck import Leftover, lasting, leaks, table


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prefix", type=Path, default=Path("/"), help="the directory below which everything is kept (/)"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    layout = Layout(arguments.prefix.resolve())
    try:
        found = _look(layout)
        found = lasting(found, _look(layout)) if found else found
    except OSError as error:
        raise UserError(str(error)) from error
    if arguments.output == "json":
        print(json.dumps([leftover._asdict() for leftover in found], indent=2))
    else:
        print(table(found) if found else "nothing is left")
    return 1 if found else 0


def _look(layout: Layout) -> list[Leftover]:
    return leaks(cluster_leftovers.found(layout, SlotClaims()), cluster_leftovers.owners(layout))
