"""`podwire proxy`: sends packets to Services on to their endpoints, with any API server and any network plugin."""

import argparse
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import (
    add_balancer_pool,
    add_logging,
    address,
    first_error,
    networks,
    run_until_stopped,
    this_node,
    write_line,
)
from podwire.cluster import proxy
from podwire.cluster.daemons import tune_memory
from podwire.cluster.proxy import Options
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="kubeconfig of the API server (default: the pod's service account)",
    )
    parser.add_argument(
        "--context", default="", metavar="NAME", help="context of the kubeconfig (default: its current one)"
    )
    parser.add_argument(
        "--node-name",
        default=this_node(),
        metavar="NAME",
        help="name of this node (default: $NODE_NAME, else the host name)",
    )
    parser.add_argument(
        "--cluster-cidr",
        type=networks,
        default=(),
        metavar="CIDR[,…]",
        help="addresses of pods; others that use a cluster address are masqueraded "
        "(default: the ranges of this node, spec.podCIDRs)",
    )
    for name, paths, default in (
        ("healthz", "/healthz and /livez", "0.0.0.0:10256"),
        ("metrics", "/metrics and /proxyMode", "127.0.0.1:10249"),
    ):
        parser.add_argument(
            f"--{name}-bind-address",
            type=_address,
            default=default,
            metavar="ADDRESS:PORT",
            help=f"serve {paths} here; empty: nowhere (default: %(default)s)",
        )
    add_balancer_pool(parser, "addresses of Services of type LoadBalancer that this node and the others announce")
    parser.add_argument("--cleanup", action="store_true", help="remove the rules of this node, and exit")
    add_logging(parser)


def _address(text: str) -> tuple[str, int] | None:
    return address(text) if text else None


def run(arguments: argparse.Namespace) -> int:
    if arguments.cleanup:
        return _remove()
    options = Options(
        node=arguments.node_name,
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
        pods=arguments.cluster_cidr,
        balancer_pool=arguments.load_balancer_pool,
        healthz=arguments.healthz_bind_address,
        metrics=arguments.metrics_bind_address,
    )
    try:  # bad credentials are reported before anything runs
        credentials.ssl_context(proxy.access_of(options))
    except (BadKubeconfig, OSError) as error:
        raise UserError(str(error)) from error
    return run_until_stopped(_work(options), arguments)


def _remove() -> int:
    try:
        removed = proxy.remove()
    except OSError as error:
        raise UserError(str(error)) from error
    write_line("removed: table inet podwire-proxy" if removed else "nothing was there")
    return 0


async def _work(options: Options) -> None:
    tune_memory()
    try:
        await proxy.run(options)
    except* (ApiError, OSError) as failures:
        raise UserError(str(first_error(failures))) from failures
