"""`podwire cni test`: tests a CNI plugin in any language against the specification."""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from podwire.cli.conformance import add_format, finish, printer
from podwire.cli.main import UserError
from podwire.cli.options import seconds
from podwire.inspect.conformance.cni import Options, run_cni_cases
from podwire.inspect.conformance.cni_subject import CHAINED, INTERFACE, IPAM, STANDARD, UPLINK, Object
from podwire.inspect.conformance.private_host import run_on_private_host
from podwire.linux.errors import LinuxError
from podwire.protocols.cni import versions

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - the only name that its type has

MOST_BYTES = 1 << 20


def configure(verbs: "Verbs") -> None:
    parser = verbs.add_parser("test", help="Test a plugin, in any language, against the CNI specification")
    parser.description = (
        "Test a CNI plugin against the specification: ADD, DEL, CHECK, GC, STATUS, VERSION, kills, parallel calls and "
        "bad input. It runs in network, mount and pid namespaces of its own: nothing of it reaches this host."
    )
    parser.add_argument("plugin", type=Path, metavar="PLUGIN", help="path of its program")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"network configuration; the host has a link {UPLINK} (default: one for {', '.join(STANDARD)})",
    )
    parser.add_argument(
        "--kind",
        choices=(INTERFACE, IPAM, CHAINED),
        default="",
        help="makes interfaces, assigns addresses, or changes interfaces of others (default: by its name)",
    )
    parser.add_argument(
        "--bin-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="other plugins, such as IPAM; repeatable (default: the directory of PLUGIN)",
    )
    parser.add_argument(
        "--cni-version", choices=versions.KNOWN, default="", help="of requests (default: the newest of the plugin)"
    )
    parser.add_argument(
        "--timeout", type=seconds, default=30.0, metavar="SECONDS", help="for one call (default: %(default)g)"
    )
    add_format(parser)


def run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UserError("needs root, for network namespaces; try `sudo podwire cni test`")
    program = arguments.plugin.absolute()
    if not program.is_file() or not os.access(program, os.X_OK):
        raise UserError(f"{arguments.plugin} is not a program that can be run")
    options = Options(
        program=program,
        path=[directory.absolute() for directory in arguments.bin_dir],
        version=arguments.cni_version,
        config=None if arguments.config is None else _read(arguments.config),
        kind=arguments.kind,
        seconds=arguments.timeout,
    )

    def work() -> int:
        return finish(run_cni_cases(options, printer(arguments.output)), arguments.output)

    try:
        return run_on_private_host(work, UPLINK)
    except (LinuxError, OSError) as error:
        raise UserError(f"cannot make namespaces for the test: {error}") from error


def _read(path: Path) -> Object:
    """Returns the configuration of one plugin; of a list, its first."""
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(MOST_BYTES))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON: {error}") from error
    if isinstance(value, dict) and isinstance(value.get("plugins"), list) and value["plugins"]:
        value = {"name": value.get("name", ""), **value["plugins"][0]}
    if not isinstance(value, dict):
        raise UserError(f"{path}: must be a network configuration, a JSON object")
    return value
