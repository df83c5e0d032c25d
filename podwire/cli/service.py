"""`podwire service`: explains the way of a packet to a Service."""

import argparse
import asyncio
import os

import msgspec

from podwire.cli.main import UserError
from podwire.cli.options import add_prefix, write_line
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.inspect.service_explain import Asked, CannotExplain, explain_service
from podwire.linux.errors import LinuxError
from podwire.nriplugins.network.policy.policies import Broken
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError

NOT_REACHABLE = 3
"""The exit code for a Service that the client does not reach."""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    explaining = verbs.add_parser(
        "explain",
        help="Explain the way of a packet to a Service, rule by rule",
        description="Explain the way of a packet to a Service of a cluster on this machine: the rules in the kernel of "
        "the client's node or that of a node port, the policies, and a test packet from the client that proves it. "
        f"Exit code 0: reachable; {NOT_REACHABLE}: not.",
    )
    explaining.add_argument("service", metavar="SERVICE[:PORT]", help="[NAMESPACE/]NAME, and a port by number or name")
    explaining.add_argument("--from", dest="source", default="", metavar="POD", help="[NAMESPACE/]POD: the client")
    explaining.add_argument(
        "--address",
        default="",
        metavar="ADDRESS",
        help="address to connect to: a cluster address, an external one or the load balancer's (default: the first "
        "cluster address); with --node-port one of the node's",
    )
    explaining.add_argument(
        "--node-port", default="", metavar="NODE", help="connect to the node port at NODE instead, by its rules"
    )
    add_prefix(explaining)
    explaining.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UserError("needs root, to read the rules of a node and to send a packet from a pod")
    name, _, port = arguments.service.partition(":")
    try:
        layout = layout_of(arguments.prefix)
        asked = Asked(
            service=name,
            port=port,
            source=arguments.source,
            address=arguments.address,
            node_port=arguments.node_port,
        )
        result = asyncio.run(explain_service(layout, layout.kubeconfig, asked))
    except (BadPrefix, BadKubeconfig, ApiError, ClientError, CannotExplain, Broken, LinuxError, OSError) as error:
        raise UserError(str(error)) from error
    write_line(str(result) if arguments.output == "text" else msgspec.json.encode(result).decode())
    return 0 if result.reachable else NOT_REACHABLE
