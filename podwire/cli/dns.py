"""`podwire dns`: resolves names of Services and pods, with any API server."""

import argparse
import ipaddress
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_logging, first_error, run_until_stopped
from podwire.cluster import dns
from podwire.cluster.daemons import tune_memory
from podwire.dns.config import BadSetting, Upstream, upstream_of
from podwire.dns.publishing import METRICS_PORT
from podwire.protocols.dns.queries import name_of
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials
from podwire.transports.dns_sockets import Listeners


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        required=True,
        metavar="FILE",
        help="kubeconfig of an identity that may list services, endpointslices, namespaces and one configmap",
    )
    parser.add_argument(
        "--context", default="", metavar="NAME", help="context of the kubeconfig (default: its current one)"
    )
    serving = parser.add_argument_group("serving")
    serving.add_argument(
        "--listen",
        type=_address,
        action="append",
        metavar="ADDRESS",
        help="address to answer at; may be repeated (default: 127.0.0.1)",
    )
    serving.add_argument("--port", type=_port, default=dns.PORT, help="for UDP and TCP (default: %(default)s)")
    serving.add_argument(
        "--metrics-port",
        type=_port,
        default=METRICS_PORT,
        metavar="PORT",
        help="for /metrics, /health and /ready; 0 for none (default: %(default)s)",
    )
    serving.add_argument(
        "--allow",
        type=_network,
        action="append",
        metavar="CIDR",
        help="network whose queries are answered; may be repeated (default: all)",
    )
    names = parser.add_argument_group("names")
    names.add_argument(
        "--cluster-domain", type=_domain, default="cluster.local", metavar="DOMAIN", help="(default: %(default)s)"
    )
    names.add_argument(
        "--upstream",
        type=_upstream,
        action="append",
        metavar="ADDRESS[:PORT]",
        help="server for other names; may be repeated (default: those of --resolv-conf)",
    )
    names.add_argument(
        "--resolv-conf", type=Path, default=Path("/etc/resolv.conf"), metavar="FILE", help="(default: %(default)s)"
    )
    announcing = parser.add_argument_group("announcing")
    announcing.add_argument(
        "--cluster-ip",
        type=_address,
        metavar="ADDRESS",
        help="create the Service kube-system/kube-dns there, and announce this server in it (default: do not)",
    )
    announcing.add_argument(
        "--name", default="podwire", help="the EndpointSlice is kube-dns-NAME (default: %(default)s)"
    )
    add_logging(parser)


def run(arguments: argparse.Namespace) -> int:
    options = dns.Options(
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
        addresses=tuple(arguments.listen or ("127.0.0.1",)),
        port=arguments.port,
        metrics_port=arguments.metrics_port,
        cluster_domain=arguments.cluster_domain,
        cluster_ip=arguments.cluster_ip or "",
        name=arguments.name,
        resolv_conf=arguments.resolv_conf,
        upstreams=tuple(arguments.upstream or ()),
        clients=tuple(arguments.allow or ()),
    )
    try:  # bad credentials and a port in use are reported before anything runs
        credentials.ssl_context(credentials.load(options.kubeconfig, context=options.context))
        listeners = dns.bind(options)
    except (BadKubeconfig, OSError) as error:
        raise UserError(str(error)) from error
    try:
        return run_until_stopped(_work(options, listeners), arguments)
    finally:
        listeners.close()


async def _work(options: dns.Options, listeners: Listeners) -> None:
    tune_memory()
    try:
        await dns.run(options, listeners)
    except ExceptionGroup as failures:
        refusals, others = failures.split(ApiError)
        if refusals is None or others is not None:
            raise
        raise UserError(f"cannot watch this API server: {first_error(refusals)}") from failures


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def _domain(text: str) -> str:
    try:
        labels = name_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not labels:
        raise argparse.ArgumentTypeError("the root cannot be the domain of a cluster")
    return b".".join(labels).decode()


def _upstream(text: str) -> Upstream:
    try:
        return upstream_of(text)
    except BadSetting as error:
        raise argparse.ArgumentTypeError(str(error)) from error
