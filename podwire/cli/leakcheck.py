"""`podwire leakcheck`: what podwire left on this host that no pod explains."""

import argparse
import json
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cluster import traces
from podwire.cluster.leakcheck import Trace, lasting, leaks, table
from podwire.cluster.runtime import Options


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prefix", type=Path, default=Path("/"), help="the directory below which everything is kept (/)"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    options = Options(socket=arguments.prefix / "run/podwire/cri.sock", prefix=arguments.prefix)
    try:
        found = _look(options)
        found = lasting(found, _look(options)) if found else found
    except OSError as error:
        raise UserError(str(error)) from error
    if arguments.output == "json":
        print(json.dumps([each._asdict() for each in found], indent=2))
    else:
        print(table(found) if found else "nothing is left")
    return 1 if found else 0


def _look(options: Options) -> list[Trace]:
    return leaks(traces.found(options), traces.owners(options))
