"""`podwire hollow`: thousands of nodes whose containers are simulated, for tests of scale."""

import argparse
import math
import re
from pathlib import Path

from podwire.cli.kubeconfig import kubeconfig_files
from podwire.cli.kubelet import node_labels, node_taints
from podwire.cli.main import UserError
from podwire.cli.options import add_logging, add_prefix, first_error, run_until_stopped, seconds
from podwire.cluster.daemons import tune_memory
from podwire.cluster.hollow import Options
from podwire.cluster.hollow import run as work
from podwire.kubelet.hollow import HollowSettings
from podwire.kubelet.hollow.settings import MOST_NODES, MOST_PODS
from podwire.kubelet.node.settings import NodeLimits
from podwire.objects import quantity
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.transports import credentials

RENEWALS = 125
"""Renewals of leases per second at most, by default; more nodes renew theirs less often, up to `LONGEST_PERIOD`."""
SHORTEST_PERIOD, LONGEST_PERIOD = 10.0, 30.0
_PREFIX = re.compile(r"[a-z0-9][-a-z0-9.]{0,40}")
_RESOURCE = re.compile(r"([a-z0-9][-a-z0-9.]*/[A-Za-z0-9][-A-Za-z0-9_.]*)=([0-9]{1,4})")
_DRIVER = re.compile(r"([a-z0-9][-a-z0-9.]{0,60}[a-z0-9])=([0-9]{1,3})")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="kubeconfig of an identity that may write nodes, leases, pods and events "
        "(default: $KUBECONFIG, or that of the cluster)",
    )
    parser.add_argument(
        "--context", default="", metavar="NAME", help="context of the kubeconfig (default: its current one)"
    )
    parser.add_argument("--nodes", type=_count, required=True, metavar="N", help="number of nodes")
    parser.add_argument(
        "--first", type=_number, default=0, metavar="N", help="number of the first node (default: %(default)s)"
    )
    parser.add_argument(
        "--node-prefix",
        type=_prefix,
        default="hollow-",
        metavar="TEXT",
        help="beginning of the names of nodes (default: %(default)s)",
    )
    add_prefix(parser)
    parser.add_argument("--keep", action="store_true", help="leave the Nodes in the API at the end")
    group = parser.add_argument_group("each node")
    group.add_argument("--cpu", type=_count, default=32, metavar="N", help="processors (default: %(default)s)")
    group.add_argument(
        "--memory", type=_bytes, default="256Gi", metavar="QUANTITY", help="memory (default: %(default)s)"
    )
    group.add_argument(
        "--max-pods", type=_count, default=110, metavar="N", help="number of pods at most (default: %(default)s)"
    )
    group.add_argument(
        "--zones", type=_count, default=1, metavar="N", help="zones that nodes are in by turns (default: %(default)s)"
    )
    group.add_argument("--node-labels", type=node_labels, default={}, metavar="KEY=VALUE[,…]", help="labels")
    group.add_argument(
        "--register-with-taints", type=node_taints, default=(), metavar="KEY=VALUE:EFFECT[,…]", help="taints"
    )
    group.add_argument(
        "--device",
        type=_resource,
        action="append",
        default=[],
        metavar="RESOURCE=N",
        help="devices of a device plugin, such as example.com/gpu=8; repeatable",
    )
    group.add_argument(
        "--dra-device",
        type=_driver,
        metavar="DRIVER=N",
        help="devices in a ResourceSlice, such as gpu.example.com=8",
    )
    group = parser.add_argument_group("traffic")
    group.add_argument("--no-events", action="store_true", help="write no Events")
    group.add_argument(
        "--lease-period",
        type=seconds,
        metavar="SECONDS",
        help="between two renewals of a lease (default: 10; more for more than 1,250 nodes, up to 30)",
    )
    group.add_argument(
        "--requests", type=_count, default=32, metavar="N", help="requests in flight at most (default: %(default)s)"
    )
    add_logging(parser)


def run(arguments: argparse.Namespace) -> int:
    files = kubeconfig_files(arguments)
    options = Options(kubeconfigs=files, context=arguments.context, settings=_settings(arguments))
    try:  # bad credentials are reported before anything runs
        credentials.ssl_context(credentials.load_merged(options.kubeconfigs, context=options.context))
    except (BadKubeconfig, OSError) as error:
        raise UserError(str(error)) from error
    return run_until_stopped(_work(options), arguments)


async def _work(options: Options) -> None:
    tune_memory()
    try:
        await work(options)
    except ExceptionGroup as failures:
        refusals, others = failures.split(ApiError)
        if refusals is None or others is not None:
            raise
        raise UserError(f"cannot watch this API server: {first_error(refusals)}") from failures


def _settings(arguments: argparse.Namespace) -> HollowSettings:
    if arguments.first + arguments.nodes > MOST_NODES:
        raise UserError(f"--first and --nodes: at most {MOST_NODES} nodes have addresses")
    if arguments.max_pods > MOST_PODS:
        raise UserError(f"--max-pods: at most {MOST_PODS} pods of a node have addresses")
    period = arguments.lease_period
    if period is None:
        period = min(LONGEST_PERIOD, max(SHORTEST_PERIOD, math.ceil(arguments.nodes / RENEWALS)))
    driver, devices = arguments.dra_device or ("hollow.podwire.dev", 0)
    return HollowSettings(
        nodes=arguments.nodes,
        first=arguments.first,
        prefix=arguments.node_prefix,
        cpus=arguments.cpu,
        memory=arguments.memory,
        max_pods=arguments.max_pods,
        zones=arguments.zones,
        labels=arguments.node_labels,
        taints=arguments.register_with_taints,
        devices=dict(arguments.device),
        dra_driver=driver,
        dra_devices=devices,
        keep=arguments.keep,
        events=not arguments.no_events,
        requests=arguments.requests,
        limits=NodeLimits(lease_period=period, lease_duration=max(40, int(4 * period))),
    )


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number")
    return int(text)


def _count(text: str) -> int:
    if not (number := _number(text)):
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} must be the beginning of a node's name: lower case, digits, - and ."
        )
    return text


def _bytes(text: str) -> int:
    try:
        return quantity.parse(text).value()
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _resource(text: str) -> tuple[str, int]:
    if (found := _RESOURCE.fullmatch(text)) is None:
        raise argparse.ArgumentTypeError(f"{text!r} must be RESOURCE=N, such as example.com/gpu=8")
    return found[1], int(found[2])


def _driver(text: str) -> tuple[str, int]:
    if (found := _DRIVER.fullmatch(text)) is None or not 1 <= int(found[2]) <= 128:
        raise argparse.ArgumentTypeError(f"{text!r} must be DRIVER=N, such as gpu.example.com=8, with 1 to 128 devices")
    return found[1], int(found[2])
