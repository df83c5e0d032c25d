"""`podwire env`: prints shell variables, so that kubectl and podwire mean one cluster."""

import argparse
import json
import os
import shlex
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import PREFIX, add_prefix
from podwire.cluster.up.layout import BadPrefix, layout_of

FISH = "fish"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        'Print shell variables: eval "$(podwire env)" makes kubectl and podwire mean one cluster; '
        "in fish: podwire env | source"
    )
    add_prefix(parser)
    parser.add_argument("--unset", action="store_true", help="print how to remove the variables again")
    shells = ("sh", FISH)
    usual = FISH if Path(os.environ.get("SHELL", "")).name == FISH else "sh"
    parser.add_argument("--shell", choices=shells, default=usual, help="syntax (default: by $SHELL)")
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="output format (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        layout = layout_of(arguments.prefix)
    except (BadPrefix, OSError) as error:
        raise UserError(str(error)) from error
    variables = {PREFIX: str(layout.prefix), "KUBECONFIG": str(layout.kubeconfig)}
    if arguments.output == "json":
        print(json.dumps(variables, indent=2))
        return 0
    if not arguments.unset and not layout.kubeconfig.exists():
        raise UserError(f"{layout.kubeconfig} does not exist yet; `podwire up` writes it")
    for name, value in variables.items():
        if arguments.unset:
            print(f"set -e {name}" if arguments.shell == FISH else f"unset {name}")
        elif arguments.shell == FISH:
            print(f"set -gx {name} {shlex.quote(value)}")
        else:
            print(f"export {name}={shlex.quote(value)}")
    return 0
