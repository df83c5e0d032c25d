"""`podwire network-driver`: publishes network interfaces of a node as DRA devices."""

import argparse
import os
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import (
    add_logging,
    add_node,
    add_prefix,
    add_root,
    first_error,
    run_until_stopped,
    this_node,
    write_line,
)
from podwire.cluster import network_driver
from podwire.cluster.daemons import tune_memory
from podwire.cluster.network_driver import CDI, KUBELET, STATE, Options
from podwire.cluster.removal import InUse, remove_network_driver
from podwire.cluster.up.layout import BadPrefix
from podwire.cluster.up.state import BrokenState
from podwire.dradriver.config import Config, load
from podwire.dradriver.inventory.filter import Filter
from podwire.durable.records import NewerFormat
from podwire.inspect import claim_explain
from podwire.nri.errors import NriError
from podwire.nri.identity import SOCKET
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.settings import BadConfig
from podwire.transports import credentials

POD_UID = "POD_UID"
_NOT_EXPLAINED = (
    claim_explain.NoCluster,
    BadPrefix,
    NewerFormat,
    BrokenState,
    BadKubeconfig,
    ApiError,
    ClientError,
    OSError,
)

EPILOG = """\
Without --config it publishes every interface of this node except those that
its own traffic needs, attaches interfaces to pods that claim them, and
restores them afterwards. The file of --config can have:
  which interfaces are published (CEL)
    filter: 'attributes["kind"] != "veth"'
  interfaces that many pods share
    shared: [{interface: eth1, slots: 16, bandwidth: 10G}]
  addresses that claims can request
    pools: {lab: {subnet: 10.9.0.0/24, rangeStart: 10.9.0.100}}

To explain the state of a claim, for clusters of `podwire up` without options:
  podwire network-driver explain NAMESPACE/CLAIM

See docs/network-driver.md.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add_node(parser)
    parser.set_defaults(node_name="")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="YAML file: filter, shared interfaces, address pools"
    )
    parser.add_argument("--check", action="store_true", help="only validate the file of --config")
    parser.add_argument(
        "--remove", action="store_true", help="remove everything that the driver left on this node, and exit"
    )
    parser.add_argument(
        "--pod-uid",
        default=os.environ.get(POD_UID, ""),
        metavar="UID",
        help=f"UID of the driver's own pod, for rolling updates with two instances (default: ${POD_UID})",
    )
    where = parser.add_argument_group("paths")
    add_root(where)
    where.add_argument("--nri-socket", type=Path, metavar="PATH", help=f"NRI socket of the runtime (default: {SOCKET})")
    for flag, default, summary in (
        ("--kubelet-dir", KUBELET, "directory of the kubelet"),
        ("--state-dir", STATE, "state of claims, and of devices before they were attached"),
        ("--cdi-dir", CDI, "CDI files"),
        ("--sysfs", Path("/sys"), "sysfs, for drivers, PCI addresses and NUMA nodes"),
    ):
        where.add_argument(flag, type=Path, default=default, metavar="DIR", help=f"{summary} (default: {default})")
    add_logging(parser)
    commands = parser.add_subparsers(title="commands", dest="action", metavar="")
    explain = commands.add_parser("explain", help="Explain the state of a claim")
    explain.add_argument("claim", metavar="[NAMESPACE/]CLAIM")
    explain.add_argument("-n", "--namespace", default="default", help="namespace of CLAIM (default: %(default)s)")
    add_prefix(explain)
    for flag, type_ in (("--kubeconfig", Path), ("--context", str), ("--node-name", str), ("--state-dir", Path)):
        explain.add_argument(flag, type=type_, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    if arguments.remove:
        return _remove(arguments)
    options = _options(arguments)
    if arguments.check:
        return 0
    if arguments.action == "explain":
        return _explain(options, arguments)
    try:  # bad credentials are reported before anything runs
        credentials.ssl_context(network_driver.access_of(options))
    except (BadKubeconfig, OSError) as error:
        raise UserError(str(error)) from error
    if os.geteuid() != 0:
        raise UserError("needs root, for links and namespaces; try `sudo podwire network-driver`")
    return run_until_stopped(_work(options), arguments)


def _remove(arguments: argparse.Namespace) -> int:
    state, kubelet = (arguments.root / path.relative_to("/") for path in (arguments.state_dir, arguments.kubelet_dir))
    try:
        for path in remove_network_driver(state=state, kubelet=kubelet):
            write_line(str(path))
    except (InUse, OSError) as error:
        raise UserError(str(error)) from error
    return 0


def _options(arguments: argparse.Namespace) -> Options:
    host, port = arguments.listen or ("127.0.0.1", None)
    return Options(
        node=arguments.node_name or this_node(),
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
        config=_loaded(arguments.config) if arguments.config else Config(),
        pod_uid=arguments.pod_uid,
        kubelet=arguments.kubelet_dir,
        state=arguments.state_dir,
        cdi=arguments.cdi_dir,
        sysfs=arguments.sysfs,
        nri_socket=arguments.nri_socket,
        address=host,
        port=port,
    )


def _loaded(path: Path) -> Config:
    try:
        config = load(path)
        Filter(config.offering.filter)
    except BadConfig as error:
        raise UserError(f"{path}: {error}") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    return config


def _explain(options: Options, arguments: argparse.Namespace) -> int:
    namespace, _, name = arguments.claim.rpartition("/")
    try:
        named = claim_explain.has_access(options)
        cluster = claim_explain.cluster_of_options(options) if named else claim_explain.find_cluster(arguments.prefix)
        on = "" if named else arguments.node_name
        for line in claim_explain.explain(cluster, namespace or arguments.namespace, name, on=on):
            write_line(line)
    except _NOT_EXPLAINED as error:
        raise UserError(str(error)) from error
    return 0


async def _work(options: Options) -> None:
    tune_memory()
    try:
        await network_driver.run(options)
    except* (ApiError, BadConfig, NriError, OSError) as failures:
        raise UserError(str(first_error(failures))) from failures
