"""`podwire uninstall`: removes the systemd units that `podwire install` wrote."""

import argparse
import os
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cluster import units


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--unit-dir",
        type=Path,
        default=units.DIRECTORY,
        metavar="DIR",
        help="directory of units (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UserError("needs root; try `sudo podwire uninstall`")
    try:
        removed = units.remove(arguments.unit_dir)
    except (units.ForeignUnit, OSError) as error:
        raise UserError(str(error)) from error
    for path in removed:
        print(f"{path} is removed")
        wanted = arguments.unit_dir / "multi-user.target.wants" / path.name
        if wanted.is_symlink():
            print(f"next: systemctl disable --now {path.name}")
    if not removed:
        print(f"no unit of podwire in {arguments.unit_dir}")
    return 0
