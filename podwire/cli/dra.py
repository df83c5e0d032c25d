"""`podwire dra`: tests DRA drivers in any language."""

import argparse
import asyncio
from pathlib import Path

from podwire.cli.conformance import add_format, finish, printer, socket_of
from podwire.cli.options import seconds
from podwire.inspect.conformance.dra import ClaimRef, Subject, run_dra_cases


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    testing = verbs.add_parser("test", help="Test a driver, in any language, against the DRA plugin API")
    testing.description = "Call a DRA driver as a kubelet does, and check its answers. It need not be registered."
    testing.add_argument("socket", type=Path, metavar="SOCKET", help="of its service DRAPlugin")
    testing.add_argument("--registration", type=Path, metavar="SOCKET", help="of its service Registration")
    testing.add_argument(
        "--claim",
        type=_claim,
        metavar="NAMESPACE/NAME/UID",
        help="of a claim that is allocated to it and reserved for a pod that does not run; it is prepared",
    )
    testing.add_argument("--api", choices=("v1", "v1beta1"), default="v1", help="version (default: %(default)s)")
    testing.add_argument(
        "--timeout", type=seconds, default=45.0, metavar="SECONDS", help="for one call (default: %(default)g)"
    )
    add_format(testing)


def _claim(text: str) -> ClaimRef:
    parts = text.split("/")
    if len(parts) != 3 or not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/NAME/UID")
    return ClaimRef(*parts)


def run(arguments: argparse.Namespace) -> int:
    with asyncio.Runner() as runner:
        subject = Subject(
            socket=socket_of(arguments.socket),
            registration=arguments.registration and socket_of(arguments.registration),
            claim=arguments.claim,
            generation=arguments.api,
            seconds=arguments.timeout,
            runner=runner,
        )
        return finish(run_dra_cases(subject, printer(arguments.output)), arguments.output)
