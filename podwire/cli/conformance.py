"""Options and output that `podwire cni test`, `dra test` and `device-plugin test` share."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import write_line
from podwire.inspect.conformance.report import Report, as_json, as_junit, summary

EPILOG = """\
Requirements that the specification calls MUST fail the test; those that it calls SHOULD are warnings, marked with `!`.
exit codes: 0 no failures, 1 failures, 2 usage
"""


def add_format(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "-o", "--output", choices=("text", "json", "junit"), default="text", help="form of the report (default: text)"
    )


def socket_of(path: Path) -> Path:
    """Raises UserError when there is no socket."""
    if not path.is_socket():
        raise UserError(f"{path} is not a socket; start the plugin first")
    return path.absolute()


def printer(output: str) -> Callable[[str], None]:
    """Returns the function that shows a line of the text report while the cases run."""

    def show(line: str) -> None:
        write_line(line)
        sys.stdout.flush()

    return show if output == "text" else lambda _line: None


def finish(report: Report, output: str) -> int:
    match output:
        case "json":
            write_line(as_json(report))
        case "junit":
            write_line(as_junit(report))
        case _:
            write_line(summary(report))
    return 0 if report.ok else 1
