"""`podwire cni`: our CNI plugins, for any runtime."""

import argparse
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cniplugins.install import Foreign, install

DIRECTORY = Path("/opt/cni/bin")


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    installing = verbs.add_parser("install", help="put bridge, host-local, loopback and portmap into a directory")
    installing.add_argument("directory", type=Path, nargs="?", default=DIRECTORY, metavar="DIR")
    installing.add_argument("--force", action="store_true", help="also in place of programs that are not ours")


def run(arguments: argparse.Namespace) -> int:
    try:
        paths = install(str(arguments.directory), force=arguments.force)
    except Foreign as error:
        raise UserError(f"{error}: not ours, and --force is not given; nothing was changed") from error
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error
    for each in paths:
        print(each)
    return 0
