"""`podwire kubeconfig`: prints the path of a cluster's kubeconfig."""

import argparse
import json

from podwire.cli.main import UserError
from podwire.cli.options import add_output, add_prefix, cluster_flag
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.cluster.up.named_clusters import context_of


def configure(parser: argparse.ArgumentParser) -> None:
    add_prefix(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        layout = layout_of(arguments.prefix)
    except (BadPrefix, OSError) as error:
        raise UserError(str(error)) from error
    path = layout.kubeconfig
    if not path.exists():
        raise UserError(f"{path} does not exist yet; `podwire up{cluster_flag(layout.prefix)}` writes it")
    if arguments.output == "json":
        print(json.dumps({"kubeconfig": str(path), "context": context_of(layout)}, indent=2))
    else:
        print(path)
    return 0
