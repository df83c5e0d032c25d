"""`podwire install`: systemd units, so that a cluster or a node starts with the machine."""

import argparse
import os
import shlex
import sys
from pathlib import Path

from podwire.cli import up
from podwire.cli.main import UserError
from podwire.cli.options import add_prefix
from podwire.cluster import units
from podwire.cluster.up import state
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.cluster.up.state import BrokenState
from podwire.durable.records import NewerFormat

ROLES = ("control-plane", "node")
EPILOG = """\
examples:
  podwire install control-plane --prefix /srv/pw --up-flags="--advertise-address 192.168.1.10"
  podwire install node             a machine that has joined, see `podwire join`
  systemctl enable --now podwire.service
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("role", choices=ROLES, help="a cluster of `podwire up`, or a node of `podwire join`")
    parser.add_argument(
        "--up-flags",
        type=_words,
        default=[],
        metavar="TEXT",
        help="options of `podwire up` at each start, such as --up-flags='--nodes 2'",
    )
    add_prefix(parser)
    parser.add_argument(
        "--unit-dir",
        type=Path,
        default=units.DIRECTORY,
        metavar="DIR",
        help="directory of units (default: %(default)s)",
    )


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UserError("needs root; try `sudo podwire install`")
    program = str(Path(sys.executable).with_name("podwire"))
    try:
        if arguments.role == "node":
            name, content = units.NODE, _node(program, arguments.up_flags)
        else:
            name, content = units.CONTROL_PLANE, _control_plane(program, arguments.prefix, arguments.up_flags)
        path = arguments.unit_dir / name
        changed = units.write(path, content)
    except (BadPrefix, BrokenState, NewerFormat, units.ForeignUnit, OSError) as error:
        raise UserError(str(error)) from error
    print(f"{path} {'is written' if changed else 'is there already'}")
    print(f"next: systemctl daemon-reload && systemctl enable --now {name}")
    return 0


def _control_plane(program: str, prefix: Path, flags: list[str]) -> str:
    layout = layout_of(prefix)
    if "--detach" in flags:
        raise UserError("--detach: systemd supervises processes in the foreground; leave it out")
    checked = argparse.ArgumentParser(prog="podwire install --up-flags")
    up.configure(checked)
    checked.parse_args(flags)  # a flag that `up` does not have is reported now, and not at the next boot
    words = [program, "up", "--prefix", str(layout.prefix), *flags]
    return units.text(f"podwire cluster below {layout.prefix}", words)


def _node(program: str, flags: list[str]) -> str:
    known = state.load(layout_of(Path("/")).record)
    if known is None or not known.joined:
        raise UserError("this machine has not joined a cluster; `podwire join` it first")
    if flags:
        raise UserError(f"{flags[0]}: a node has no options of `podwire up`")
    return units.text(f"podwire node of {known.joined}", [program, "join"])
