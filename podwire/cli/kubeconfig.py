"""`podwire kubeconfig`: prints the path of a cluster's kubeconfig."""

import argparse

from podwire.cli.main import UserError
from podwire.cli.options import add_prefix
from podwire.cluster.up.layout import BadPrefix, layout_of


def configure(parser: argparse.ArgumentParser) -> None:
    add_prefix(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        path = layout_of(arguments.prefix).kubeconfig
    except BadPrefix as error:
        raise UserError(str(error)) from error
    if not path.exists():
        raise UserError(f"{path} does not exist yet; `podwire up` writes it")
    print(path)
    return 0
