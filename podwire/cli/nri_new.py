"""`podwire nri new`: a plugin to begin with, and a test that it passes."""

import argparse
from pathlib import Path

from podwire.cli.main import UserError
from podwire.nriplugins.starter import BadStarter, files, write

INTERMIXED = True
"""Flags may stand between the arguments."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="letters, digits and _.+-")
    parser.add_argument("directory", metavar="DIR", type=Path, nargs="?", help="where to write it (./NAME)")
    parser.add_argument("--index", default="50", metavar="NN", help="two digits; plugins are asked in this order (50)")


def run(arguments: argparse.Namespace) -> int:
    directory = arguments.directory or Path(arguments.name)
    try:
        written = write(directory, files(arguments.name, arguments.index))
    except (BadStarter, OSError) as error:
        raise UserError(str(error)) from error
    for path in written:
        print(path)
    return 0
