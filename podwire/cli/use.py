"""`podwire use`: chooses the cluster that later commands of this user mean."""

import argparse
import os

from podwire.cli import current_cluster
from podwire.cli.main import UserError
from podwire.cli.options import PREFIX
from podwire.cluster.up.named_clusters import BadName, clusters, prefix_of
from podwire.cluster.up.slot_claims import SlotClaims


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Choose the cluster that later commands mean, for this user; without NAME, print the present one. "
        f"--name, --prefix and ${PREFIX} override it."
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of a cluster; default is the one below /")
    parser.add_argument("--none", action="store_true", help="choose none; commands mean the one below /")


def run(arguments: argparse.Namespace) -> int:
    try:
        if arguments.none:
            current_cluster.write("")
            print("no current cluster; commands mean the one below /")
        elif arguments.name is None:
            print(current_cluster.read() or "no current cluster; commands mean the one below /")
        else:
            _choose(arguments.name)
    except (BadName, OSError) as error:
        raise UserError(str(error)) from error
    return 0


def _choose(name: str) -> None:
    prefix = prefix_of(name)
    names = [entry.name for entry in clusters(SlotClaims()) if entry.name]
    if name not in names:
        known = f"there are {', '.join(names)}" if names else "there is none yet"
        raise UserError(f"no cluster {name!r}, {known}; `podwire up --name {name}` creates it")
    current_cluster.write(name)
    print(f"commands mean the cluster {name} below {prefix}")
    if given := os.environ.get(PREFIX):
        print(f"but ${PREFIX} is {given}, and has precedence; `unset {PREFIX}`")
