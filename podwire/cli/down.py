"""`podwire down`: removes a cluster."""

import argparse
import os
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cluster.up.down import NotRemoved, down
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.state import NewerState
from podwire.cluster.up.status_file import PrefixLocked
from podwire.cluster.up.stop import StillThere


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prefix", type=Path, default=Path("/"), metavar="DIR", help="the directory below which everything is kept (/)"
    )
    parser.add_argument(
        "--force", action="store_true", help="forget the cluster even if something of it cannot be removed"
    )


def run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UserError("needs root, like `podwire up`; try `sudo podwire down`")
    try:
        layout = layout_of(arguments.prefix)
        removed = down(layout, SlotClaims(), force=arguments.force)
    except NotRemoved as error:
        raise UserError(f"not everything is removed; try again, or --force to forget it: {error}") from error
    except (BadPrefix, NewerState, PrefixLocked, StillThere, OSError) as error:
        raise UserError(str(error)) from error
    print(f"removed the cluster below {layout.prefix}" if removed else f"there is no cluster below {layout.prefix}")
    return 0
