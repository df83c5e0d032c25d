"""`podwire kubeconfig`: prints the path of a cluster's kubeconfig."""

import argparse
import json
import os
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_output, add_prefix, cluster_flag
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.cluster.up.named_clusters import context_of
from podwire.transports import credentials


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


def kubeconfig_files(arguments: argparse.Namespace) -> list[str]:
    """Returns the files of --kubeconfig, else of KUBECONFIG, else of the cluster that --prefix or --name chooses."""
    if arguments.kubeconfig is not None:
        return [str(arguments.kubeconfig)]
    if arguments.prefix == Path("/") and (named := os.environ.get("KUBECONFIG")):
        return credentials.usual_files() or [named]
    try:
        return [str(layout_of(arguments.prefix).kubeconfig)]
    except BadPrefix as error:
        raise UserError(str(error)) from error
