"""`podwire hardware`: shows hardware profiles, and plugs or unplugs simulated cards."""

import argparse
import json
from collections.abc import Callable
from typing import Any

from podwire.cli.main import UserError
from podwire.cli.options import add_prefix
from podwire.cluster.hardware import profile_yaml
from podwire.cluster.hardware.pci_functions import Function, functions, links
from podwire.cluster.hardware.profile import BadProfile, Profile
from podwire.cluster.hardware.switch import plug
from podwire.cluster.up import state
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.cluster.up.node_namespaces import NodeNamespaces
from podwire.cluster.up.state import BrokenState
from podwire.durable.records import NewerFormat
from podwire.linux.net.network import KernelNetwork


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("profiles", help="List the profiles that come with podwire")
    showing = verbs.add_parser("show", help="Show a profile, or validate a file")
    showing.add_argument("profile", metavar="PROFILE", help="YAML file, or name of a profile")
    form = showing.add_mutually_exclusive_group()
    form.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="output format (default: %(default)s)"
    )
    form.add_argument("--yaml", action="store_true", help="print the YAML file, as a template")
    for verb, summary in (("unplug", "Unplug the cable of a card: it loses its carrier"), ("plug", "Plug it in again")):
        cable = verbs.add_parser(verb, help=summary)
        cable.add_argument("card", metavar="CARD", help="name of the card in the profile; VFs are CARDv0, CARDv1, …")
        cable.add_argument("--node", metavar="NODE", help="node of the card (default: the first)")
        add_prefix(cable)


def run(arguments: argparse.Namespace) -> int:
    try:
        return _VERBS[arguments.verb](arguments)
    except BadProfile as error:
        raise UserError(str(error)) from error


def _profiles(_arguments: argparse.Namespace) -> int:
    for name in profile_yaml.names():
        print(f"{name:12} {_first_line(name)}")
    return 0


def _first_line(name: str) -> str:
    return profile_yaml.text_of(name).partition("\n")[0].removeprefix("# ")


def _show(arguments: argparse.Namespace) -> int:
    profile = profile_yaml.load(arguments.profile)
    if arguments.yaml:
        print(profile_yaml.text_of(arguments.profile), end="")
    elif arguments.output == "json":
        print(json.dumps([_as_json(function) for function in functions(profile)], indent=2))
    else:
        _print_table(profile)
    return 0


def _as_json(function: Function) -> dict[str, Any]:
    fields: dict[str, Any] = {"pci": function.pci}
    fields |= {"kind": "gpu" if function.gpu else "vf" if function.physical else "nic", "name": function.name}
    fields |= {
        "numaNode": function.numa,
        "pcieRoot": function.root,
        "driver": function.driver,
        "mac": function.mac,
        "rdma": function.rdma,
    }
    fields |= {"vendor": function.vendor, "device": function.device, "physicalFunction": function.physical}
    return {key: value for key, value in fields.items() if value not in ("", None)}


def _print_table(profile: Profile) -> None:
    rows = [("PCI", "KIND", "NAME", "NUMA", "ROOT", "DRIVER", "MAC", "RDMA")]
    for function in functions(profile):
        fields = _as_json(function)
        name = function.gpu.model if function.gpu else function.name
        numa = "-" if function.numa is None else str(function.numa)
        rows.append(
            (
                function.pci,
                fields["kind"],
                name,
                numa,
                function.root,
                function.driver,
                function.mac or "-",
                function.rdma or "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cable(arguments: argparse.Namespace) -> int:
    try:
        layout = layout_of(arguments.prefix)
        known = state.load(layout.record)
        if known is None or known.hardware is None:
            raise UserError(
                f"no cluster with simulated hardware below {layout.prefix}; `podwire up --hardware` creates one"
            )
        _check_name(arguments.card, known.hardware)
        names = [node.name for node in known.nodes]
        if (node := arguments.node or names[0]) not in names:
            raise UserError(f"no node {node}; the nodes are {', '.join(names)}")
        with KernelNetwork(NodeNamespaces(layout, node).switch) as switch:
            plug(switch, arguments.card, plugged=arguments.verb == "plug")
    except (BadPrefix, BrokenState, NewerFormat, OSError) as error:
        raise UserError(str(error)) from error
    return 0


def _check_name(card: str, profile: Profile) -> None:
    """The switch has other links than those of cards."""
    names = [link.name for link in links(functions(profile))]
    if card not in names:
        raise UserError(f"no card {card}; the cards are {', '.join(names)}")


_VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "profiles": _profiles,
    "show": _show,
    "plug": _cable,
    "unplug": _cable,
}
