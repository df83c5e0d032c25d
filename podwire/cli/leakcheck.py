"""`podwire leakcheck`: lists leftovers, resources that podwire created and no pod uses."""

import argparse
import asyncio
import json
import sys
import time

from podwire.cli.main import UserError
from podwire.cli.options import add_output, add_prefix
from podwire.cluster.up import state
from podwire.cluster.up.layout import BadPrefix, Layout, layout_of
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.inspect import cluster_leftovers
from podwire.inspect.leakcheck import Leftover, lasting, leaks, table
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError

REMOVAL_SECONDS = 3.0
"""For a sandbox whose pod, or an address whose Service, was just deleted."""


def configure(parser: argparse.ArgumentParser) -> None:
    add_prefix(parser)
    add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        layout = layout_of(arguments.prefix)
        leftovers = _look(layout)
        leftovers = lasting(leftovers, _look(layout)) if leftovers else leftovers
        leftovers += _without_object(layout)
    except (BadPrefix, OSError) as error:
        raise UserError(str(error)) from error
    if arguments.output == "json":
        print(json.dumps([leftover._asdict() for leftover in leftovers], indent=2))
    else:
        print(table(leftovers) if leftovers else "no leftovers")
    return 1 if leftovers else 0


def _look(layout: Layout) -> list[Leftover]:
    return leaks(cluster_leftovers.find_resources(layout, SlotClaims()), cluster_leftovers.owners(layout))


def _without_object(layout: Layout) -> list[Leftover]:
    """Compares sandboxes and addresses with the objects of the API. What is just being removed is waited for."""
    if not state.exists(layout.record):
        return []
    until = time.monotonic() + REMOVAL_SECONDS
    try:
        found = asyncio.run(cluster_leftovers.find_without_object(layout))
        while found and time.monotonic() < until:
            time.sleep(0.2)
            found = lasting(found, asyncio.run(cluster_leftovers.find_without_object(layout)))
    except (ApiError, ClientError, BadKubeconfig, TimeoutError) as error:
        print(
            f"podwire: sandboxes and addresses were not compared with the objects of the API: {error}", file=sys.stderr
        )
        return []
    return found
