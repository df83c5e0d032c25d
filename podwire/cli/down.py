"""`podwire down`: removes a cluster."""

import argparse
import json
import os

from podwire.cli.main import UserError
from podwire.cli.options import add_output, add_prefix
from podwire.cluster.up.down import NotRemoved, down
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.status_file import PrefixLocked
from podwire.cluster.up.stop import StillThere
from podwire.durable.records import NewerFormat


def configure(parser: argparse.ArgumentParser) -> None:
    add_prefix(parser)
    add_output(parser)
    parser.add_argument(
        "--force", action="store_true", help="delete the records even if some resources cannot be removed"
    )


def run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UserError("needs root, like `podwire up`; try `sudo podwire down`")
    try:
        layout = layout_of(arguments.prefix)
        removed = down(layout, SlotClaims(), force=arguments.force)
    except NotRemoved as error:
        raise UserError(
            f"cannot remove everything; try again, or use --force to delete the records: {error}"
        ) from error
    except (BadPrefix, NewerFormat, PrefixLocked, StillThere, OSError) as error:
        raise UserError(str(error)) from error
    if arguments.output == "json":
        print(json.dumps({"prefix": str(layout.prefix), "removed": removed}, indent=2))
    else:
        print(f"removed the cluster below {layout.prefix}" if removed else f"no cluster below {layout.prefix}")
    return 0
