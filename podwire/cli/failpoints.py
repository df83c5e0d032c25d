"""`podwire failpoints`: lists the failpoints for fault injection."""

import argparse
import importlib
import json
import pkgutil

import podwire
from podwire import failpoints
from podwire.cli.options import add_output


def configure(parser: argparse.ArgumentParser) -> None:
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    for module in pkgutil.walk_packages(podwire.__path__, "podwire."):
        if not module.name.startswith("podwire.cli"):
            importlib.import_module(module.name)
    if arguments.output == "json":
        print(json.dumps(failpoints.KNOWN, indent=2))
        return 0
    width = max(map(len, failpoints.KNOWN), default=0)
    for name, when in sorted(failpoints.KNOWN.items()):
        print(f"{name:{width}}  {when}")
    return 0
