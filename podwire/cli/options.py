"""Options that several commands share, and how a daemon command runs."""

import argparse
import ipaddress
import math
import os
import platform
import re
import signal
import sys
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

from podwire import logs
from podwire.cli import current_cluster
from podwire.cluster import daemons
from podwire.cluster.up import named_clusters
from podwire.linux.values import Network
from podwire.objects.pod_networks import PodNetwork


def add_logging(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("logs")
    group.add_argument("--log-format", choices=("text", "json"), default="text", help="(default: %(default)s)")
    group.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info", help="(default: %(default)s)"
    )


def add_controllers(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Adds the choice of controllers, as kube-controller-manager has it."""
    parser.add_argument(
        "--controllers",
        type=_controllers,
        default="*",
        metavar="NAME[,…]",
        help="controllers to run: * for all, names, -NAME to leave one out, or none (default: *)",
    )


def add_balancer_pool(parser: argparse.ArgumentParser, help_: str) -> None:
    """Adds the pool of addresses for Services of type LoadBalancer."""
    parser.add_argument(
        "--load-balancer-pool", type=networks, default=(), metavar="CIDR[,…]", help=f"{help_} (default: none)"
    )


def add_cluster_cidr(parser: argparse.ArgumentParser) -> None:
    """Adds the networks of pods, of which each node gets a part."""
    parser.add_argument(
        "--cluster-cidr",
        type=_cluster_networks,
        default=(),
        metavar="CIDR[,CIDR]",
        help="networks of pods: each node that has none gets a /24, and a /64 of IPv6 (default: nodes have their own)",
    )


NODE_PREFIXES = {4: 24, 6: 64}
"""The prefix length of a node's part of the networks of pods, by version."""


def _cluster_networks(text: str) -> tuple[Network, ...]:
    found = networks(text)
    if len({network.version for network in found}) != len(found):
        raise argparse.ArgumentTypeError(f"{text!r} must have at most one network of each family")
    for network in found:
        if network.prefixlen > NODE_PREFIXES[network.version]:
            raise argparse.ArgumentTypeError(f"{network} is smaller than a node's /{NODE_PREFIXES[network.version]}")
    return found


def pod_networks(found: tuple[Network, ...]) -> tuple[PodNetwork, ...]:
    """Returns the networks of pods as controllers take them."""
    return tuple(PodNetwork(network, NODE_PREFIXES[network.version]) for network in found)


def networks(text: str) -> tuple[Network, ...]:
    """Reads networks, separated by commas. Raises ArgumentTypeError."""
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of networks such as 10.244.0.0/16: {error}"
        ) from error


def add_leader_election(
    parser: argparse.ArgumentParser, work: str = "run controllers", lease: str = "kube-controller-manager"
) -> None:
    parser.add_argument(
        "--leader-elect",
        choices=("true", "false"),
        default="true",
        help=f"{work} only while holding the lease kube-system/{lease} (default: true)",
    )


def _controllers(text: str) -> frozenset[str]:
    from podwire.controllers.registry import UnknownController, choose  # noqa: PLC0415 - only for those who run them

    try:
        return choose(text)
    except UnknownController as error:
        raise argparse.ArgumentTypeError(str(error)) from error


NODE_NAME = "NODE_NAME"
SHORTEST_LIFETIME, LONGEST_LIFETIME = timedelta(seconds=10), timedelta(days=3650)
"""Of a certificate: at least some requests long, at most as long as the CA's."""


PREFIX = "PODWIRE_PREFIX"
"""The environment variable for the prefix of all commands."""
_CHOSEN = "\0"
"""Stands for an option that was not given; argparse converts it like one that was."""


def add_prefix(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
    help_: str = "directory of the cluster",
    *,
    flag: str = "--name",
    required: bool = False,
    unset: Path | None = Path("/"),
) -> None:
    """Adds --prefix and --name. `unset` is the result without either, $PODWIRE_PREFIX and `podwire use`."""

    def prefix(text: str) -> Path | None:
        return Path(text) if text != _CHOSEN else chosen_prefix() or unset

    group = parser.add_mutually_exclusive_group(required=required)
    last = "" if required else f" (default: ${PREFIX}, else that of `podwire use`, else /)"
    group.add_argument(
        "--prefix", type=prefix, default=None if required else _CHOSEN, metavar="DIR", help=f"{help_}{last}"
    )
    group.add_argument(flag, dest="prefix", type=_named_prefix, metavar="CLUSTER", help="name of the cluster instead")


def add_root(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Adds --root for removals, which run in pods that have the host's root directory elsewhere."""
    parser.add_argument(
        "--root", type=Path, default=Path("/"), metavar="DIR", help="root directory of the host (default: %(default)s)"
    )


def add_component_prefix(parser: argparse.ArgumentParser) -> None:
    """Adds --prefix for a component: the current cluster of a user does not matter to it."""
    parser.add_argument(
        "--prefix",
        type=Path,
        default=os.environ.get(PREFIX, "/"),
        metavar="DIR",
        help=f"directory of the node (default: ${PREFIX}, else /)",
    )


def chosen_prefix() -> Path | None:
    """Returns the prefix of $PODWIRE_PREFIX or of `podwire use`; None without both."""
    if given := os.environ.get(PREFIX):
        return Path(given)
    try:
        name = current_cluster.read()
        return named_clusters.prefix_of(name) if name else None
    except (named_clusters.BadName, OSError) as error:
        raise argparse.ArgumentTypeError(f"the current cluster: {error}; choose one with `podwire use`") from error


def _named_prefix(name: str) -> Path:
    try:
        return named_clusters.prefix_of(name)
    except named_clusters.BadName as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def cluster_flag(prefix: Path) -> str:
    """Returns the option that names a cluster in a command to type, with a space before it; empty for the default."""
    name = named_clusters.name_of(prefix)
    if name == named_clusters.DEFAULT:
        return ""
    return f" --name {name}" if name else f" --prefix {prefix}"


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="output format (default: %(default)s)"
    )


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the first exception of nested groups."""
    first = group.exceptions[0]
    return first_error(first) if isinstance(first, BaseExceptionGroup) else first


def add_node(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a component that runs on a node, as a pod or not."""
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
        help=f"name of this node (default: ${NODE_NAME}, else the host name)",
    )
    parser.add_argument(
        "--listen",
        type=address,
        metavar="ADDRESS:PORT",
        help="serve /metrics, /healthz and /readyz here (default: not at all)",
    )


def this_node() -> str:
    return os.environ.get(NODE_NAME) or platform.node()


def address(text: str) -> tuple[str, int]:
    """Parses HOST:PORT: an IP address (IPv6 in brackets) and a port, 0 for a free one."""
    host, separator, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    try:
        ipaddress.ip_address(host)
        number = int(port)
    except ValueError:
        separator = ""
    if not separator or not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not ADDRESS:PORT such as 127.0.0.1:6443 or [::1]:6443")
    return host, number


def https_server(text: str) -> str:
    """Parses the URL of an API server."""
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or parts.path not in ("", "/"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a URL such as https://192.168.1.10:6443")
    return text.rstrip("/")


def seconds(text: str) -> float:
    """Parses a finite number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def go_seconds(text: str) -> float:
    """Parses a number of seconds, or a duration such as 10s or 1m30s."""
    parts = re.fullmatch(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9}(?:\.\d{1,9})?)s)?", text)
    if not text or parts is None:
        return seconds(text)
    hours, minutes, rest = (float(part or 0) for part in parts.groups())
    return hours * 3600 + minutes * 60 + rest


def certificate_lifetime(text: str) -> timedelta:
    """Parses a duration such as 8760h, 30m or 20s."""
    match = re.fullmatch(r"(\d{1,9})([hms])", text)
    lifetime = timedelta(seconds=int(match[1]) * {"h": 3600, "m": 60, "s": 1}[match[2]]) if match else timedelta()
    if not SHORTEST_LIFETIME <= lifetime <= LONGEST_LIFETIME:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration between 10s and 87600h, such as 8760h or 30m")
    return lifetime


def add_certificate_lifetime(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    parser.add_argument(
        "--certificate-lifetime",
        type=certificate_lifetime,
        default="8760h",
        metavar="DURATION",
        help="of all certificates but the CA's; they are renewed while the server runs (default: %(default)s)",
    )


def write_line(text: str, file: TextIO | None = None) -> None:
    """Prints a line; goes on when the reader is gone, as after `| head`."""
    try:
        print(text, file=file, flush=True)
    except BrokenPipeError:
        # Later output, also at exit, goes to /dev/null.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (file or sys.stdout).fileno())
        os.close(nowhere)


def run_until_stopped(work: Coroutine[Any, Any, None], arguments: argparse.Namespace) -> int:
    """Runs a daemon until it ends or a signal arrives; a clean stop is exit code 0."""
    logs.set_up(level=arguments.log_level, form=arguments.log_format)
    daemons.run_until_stopped(work, (signal.SIGTERM, signal.SIGINT))
    return 0
