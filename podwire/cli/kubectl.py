"""`podwire kubectl`: runs kubectl with the kubeconfig of a cluster."""

import argparse
import os
from typing import NoReturn

from podwire.cli.main import UserError
from podwire.cli.options import add_prefix, cluster_flag
from podwire.cluster.kubectl import NoKubectl, find_kubectl
from podwire.cluster.up.layout import BadPrefix, layout_of

EPILOG = """\
examples:
  podwire kubectl get pods -A
  podwire kubectl --name dev apply -f pod.yaml

Options of podwire come before the words for kubectl. The kubectl on PATH is
used, else the one that the set-up of podwire unpacked.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "podwire kubectl [-h] [--prefix DIR | --name CLUSTER] WORDS ..."
    parser.epilog = EPILOG
    add_prefix(parser)


def run(arguments: argparse.Namespace) -> NoReturn:
    try:
        layout, program = layout_of(arguments.prefix), find_kubectl()
    except (BadPrefix, NoKubectl, OSError) as error:
        raise UserError(str(error)) from error
    if not layout.kubeconfig.exists():
        flag = cluster_flag(layout.prefix)
        raise UserError(f"no cluster below {layout.prefix}; `podwire up --detach{flag}` creates one")
    if not os.access(layout.kubeconfig, os.R_OK):
        raise UserError(f"{layout.kubeconfig} belongs to another user; try `sudo podwire kubectl …`")
    os.environ["KUBECONFIG"] = str(layout.kubeconfig)
    os.execv(program, [program, *arguments.words])  # noqa: S606 - the user's own words, without a shell
