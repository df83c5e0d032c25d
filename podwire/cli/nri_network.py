"""`podwire nri-network`: policies, routes and mesh of a node's pods, on any runtime that speaks NRI."""

import argparse
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_logging, add_node, run_until_stopped, say
from podwire.cluster import nri_network
from podwire.cluster.daemons import tune_garbage_collector
from podwire.cluster.nri_network import Options
from podwire.nri.errors import NriError
from podwire.nri.identity import SOCKET
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials


def configure(parser: argparse.ArgumentParser) -> None:
    add_node(parser)
    parser.add_argument("--socket", type=Path, metavar="PATH", help=f"where the runtime listens ({SOCKET})")
    parser.add_argument("--index", metavar="NN", help="two digits; plugins are asked in this order (50)")
    parser.add_argument(
        "--remove", action="store_true", help="take away all that it set on this node and in its pods, and end"
    )
    add_logging(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.remove:
        return _remove()
    host, port = arguments.listen or ("127.0.0.1", None)
    options = Options(
        node=arguments.node_name,
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
        socket=arguments.socket,
        index=arguments.index,
        address=host,
        port=port,
    )
    try:  # what cannot be used is told before anything runs
        credentials.ssl_context(nri_network.access_of(options))
    except (BadKubeconfig, OSError) as error:
        raise UserError(str(error)) from error
    return run_until_stopped(_work(options), arguments)


def _remove() -> int:
    try:
        found = nri_network.remove()
    except OSError as error:
        raise UserError(str(error)) from error
    say(f"removed; namespaces: {found}" if found else "nothing was there")
    return 0


async def _work(options: Options) -> None:
    tune_garbage_collector()
    try:
        await nri_network.run(options)
    except* (ApiError, NriError, OSError) as failures:
        raise UserError(str(_first(failures))) from failures


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
