"""`podwire down`: removes a cluster."""

import argparse
import os
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cluster.up.claims import Claims
from podwire.cluster.up.down import NotRemoved, down
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.cluster.up.state import NewerState


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prefix", type=Path, default=Path("/"), metavar="DIR", help="the directory below which everything is kept (/)"
    )


def run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UserError("needs root, like `podwire up`; try `sudo podwire down`")
    try:
        layout = layout_of(arguments.prefix)
        removed = down(layout, Claims())
    except NotRemoved as error:
        raise UserError(f"not everything is removed, try again: {error}") from error
    except (BadPrefix, NewerState, OSError) as error:
        raise UserError(str(error)) from error
    print(f"removed the cluster below {layout.prefix}" if removed else f"there is no cluster below {layout.prefix}")
    return 0
