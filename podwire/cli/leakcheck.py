"""`podwire leakcheck`: lists leftovers, resources that podwire created and no pod uses."""

import argparse
import json

from podwire.cli.main import UserError
from podwire.cli.options import add_output, add_prefix
from podwire.cluster.up.layout import BadPrefix, Layout, layout_of
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.inspect import cluster_leftovers
from podwire.inspect.leakcheck import Leftover, lasting, leaks, table


def configure(parser: argparse.ArgumentParser) -> None:
    add_prefix(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        layout = layout_of(arguments.prefix)
        leftovers = _look(layout)
        leftovers = lasting(leftovers, _look(layout)) if leftovers else leftovers
    except (BadPrefix, OSError) as error:
        raise UserError(str(error)) from error
    if arguments.output == "json":
        print(json.dumps([leftover._asdict() for leftover in leftovers], indent=2))
    else:
        print(table(leftovers) if leftovers else "no leftovers")
    return 1 if leftovers else 0


def _look(layout: Layout) -> list[Leftover]:
    return leaks(cluster_leftovers.find_resources(layout, SlotClaims()), cluster_leftovers.owners(layout))
