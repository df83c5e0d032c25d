"""`podwire leave`: this machine is not a node any more."""

import argparse
import json
import os
import sys
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_output
from podwire.cluster.join.launch import leave
from podwire.cluster.up import state
from podwire.cluster.up.down import NotRemoved
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.cluster.up.preparation import Refused
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.state import BrokenState
from podwire.cluster.up.status_file import PrefixLocked
from podwire.cluster.up.stop import StillThere
from podwire.durable.records import NewerFormat


def configure(parser: argparse.ArgumentParser) -> None:
    add_output(parser)
    parser.add_argument(
        "--force", action="store_true", help="delete the records even if some resources cannot be removed"
    )


def run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UserError("needs root, like `podwire join`; try `sudo podwire leave`")
    try:
        layout = layout_of(Path("/"))
        known = state.load(layout.record)
        problem = leave(layout, SlotClaims(), force=arguments.force)
    except NotRemoved as error:
        raise UserError(
            f"cannot remove everything; try again, or use --force to delete the records: {error}"
        ) from error
    except (BadPrefix, BrokenState, NewerFormat, PrefixLocked, Refused, StillThere, OSError) as error:
        raise UserError(str(error)) from error
    node = known.nodes[0].name if known is not None else ""
    if arguments.output == "json":
        print(json.dumps({"left": problem is not None, "node": node, "nodeDeleted": problem == ""}, indent=2))
    elif problem is None:
        print("this machine is not a node of a cluster")
    else:
        print(f"node {node} has left")
    if problem:
        print(f"its Node was not deleted ({problem}): `kubectl delete node {node}`", file=sys.stderr)
    return 0
