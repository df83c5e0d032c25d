"""`podwire version`: prints versions, as a report of an error needs them."""

import argparse
import json
import os
import platform
import sys
from pathlib import Path

from podwire import __version__
from podwire.cli.options import add_output


def configure(parser: argparse.ArgumentParser) -> None:
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    versions = {
        "podwire": __version__,
        "python": platform.python_version(),
        "kernel": os.uname().release,
        "machine": os.uname().machine,
        "installed": str(Path(sys.prefix)),
    }
    if arguments.output == "json":
        print(json.dumps(versions, indent=2))
    else:
        for name, value in versions.items():
            print(f"{name:10} {value}")
    return 0
