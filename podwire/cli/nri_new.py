"""`podwire nri new`: creates a plugin with a test."""

import argparse
from pathlib import Path

from podwire.cli.main import UserError
from podwire.nriplugins.starter import BadStarter, files, write

INTERMIXED = True
"""Options may be placed between the arguments."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="letters, digits and _.+-")
    parser.add_argument("directory", metavar="DIR", type=Path, nargs="?", help="directory to create (default: ./NAME)")
    parser.add_argument(
        "--index", default="50", metavar="NN", help="two digits; plugins are called in this order (default: 50)"
    )


def run(arguments: argparse.Namespace) -> int:
    directory = arguments.directory or Path(arguments.name)
    try:
        written = write(directory, files(arguments.name, arguments.index))
    except (BadStarter, OSError) as error:
        raise UserError(str(error)) from error
    for path in written:
        print(path)
    return 0
