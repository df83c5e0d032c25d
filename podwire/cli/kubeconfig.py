"""`podwire kubeconfig`: where a cluster's kubeconfig is."""

import argparse
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cluster.up.layout import BadPrefix, layout_of


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prefix", type=Path, default=Path("/"), metavar="DIR", help="the directory below which everything is kept (/)"
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        path = layout_of(arguments.prefix).kubeconfig
    except BadPrefix as error:
        raise UserError(str(error)) from error
    if not path.exists():
        raise UserError(f"{path} is not there yet; `podwire up` writes it")
    print(path)
    return 0
