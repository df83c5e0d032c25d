"""`podwire nri-network`: applies policies, routes and mesh rules to pods, on any runtime with NRI."""

import argparse
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_logging, add_node, first_error, run_until_stopped, write_line
from podwire.cluster import nri_network
from podwire.cluster.daemons import tune_memory
from podwire.cluster.nri_network import Options
from podwire.nri.errors import NriError
from podwire.nri.identity import SOCKET
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials


def configure(parser: argparse.ArgumentParser) -> None:
    add_node(parser)
    parser.add_argument("--socket", type=Path, metavar="PATH", help=f"NRI socket of the runtime (default: {SOCKET})")
    parser.add_argument("--index", metavar="NN", help="two digits; plugins are called in this order (default: 50)")
    parser.add_argument(
        "--remove",
        action="store_true",
        help="remove everything that the plugin configured on this node and in its pods, and exit",
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
    try:  # bad credentials are reported before anything runs
        credentials.ssl_context(nri_network.access_of(options))
    except (BadKubeconfig, OSError) as error:
        raise UserError(str(error)) from error
    return run_until_stopped(_work(options), arguments)


def _remove() -> int:
    try:
        namespaces = nri_network.remove()
    except OSError as error:
        raise UserError(str(error)) from error
    write_line(f"removed; namespaces: {namespaces}" if namespaces else "nothing was there")
    return 0


async def _work(options: Options) -> None:
    tune_memory()
    try:
        await nri_network.run(options)
    except* (ApiError, NriError, OSError) as failures:
        raise UserError(str(first_error(failures))) from failures
