"""`podwire network-driver`: a node's network interfaces as devices that pods claim."""

import argparse
import os
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_logging, add_node, run_until_stopped, say, this_node
from podwire.cluster import network_driver
from podwire.cluster.daemons import tune_garbage_collector
from podwire.cluster.network_driver import CDI, KUBELET, STATE, Options
from podwire.cluster.up.layout import BadPrefix
from podwire.cluster.up.state import BrokenState, NewerState
from podwire.dradriver.config import Config, load
from podwire.dradriver.inventory.filter import Filter
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
    NewerState,
    BrokenState,
    BadKubeconfig,
    ApiError,
    ClientError,
    OSError,
)

EPILOG = """\
Without a word more it offers every interface of this node but those that its
own traffic needs, attaches what pods claim, and brings everything back as it
was. The file of --config has, all optional:
  which interfaces are offered (CEL)
    filter: 'attributes["kind"] != "veth"'
  interfaces that many pods get a part of
    shared: [{interface: eth1, slots: 16, bandwidth: 10G}]
  addresses that claims can ask for
    pools: {lab: {subnet: 10.9.0.0/24, rangeStart: 10.9.0.100}}

What became of a claim, and why; of a cluster of `podwire up` without a flag:
  podwire network-driver explain NAMESPACE/CLAIM

See docs/network-driver.md.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add_node(parser)
    parser.set_defaults(node_name="")
    parser.add_argument("--config", type=Path, metavar="FILE", help="what is offered, and pools of addresses, in YAML")
    parser.add_argument("--check", action="store_true", help="only say whether the file of --config can be used")
    parser.add_argument(
        "--pod-uid",
        default=os.environ.get(POD_UID, ""),
        metavar="UID",
        help=f"of the driver's own pod, for rolling updates: two instances side by side (${POD_UID})",
    )
    where = parser.add_argument_group("where things are")
    where.add_argument("--nri-socket", type=Path, metavar="PATH", help=f"where the runtime listens ({SOCKET})")
    for flag, default, told in (
        ("--kubelet-dir", KUBELET, "the kubelet's directory, with plugins and plugins_registry"),
        ("--state-dir", STATE, "what claims have, and what devices were like before"),
        ("--cdi-dir", CDI, "where CDI files are put"),
        ("--sysfs", Path("/sys"), "what tells of drivers, PCI addresses and NUMA nodes"),
    ):
        where.add_argument(flag, type=Path, default=default, metavar="DIR", help=f"{told} ({default})")
    add_logging(parser)
    commands = parser.add_subparsers(title="commands", dest="action", metavar="")
    explain = commands.add_parser("explain", help="what became of a claim on this node, and why")
    explain.add_argument("claim", metavar="[NAMESPACE/]CLAIM")
    explain.add_argument("-n", "--namespace", default="default", help="where a CLAIM without one is (%(default)s)")
    explain.add_argument(
        "--prefix",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="the cluster of `podwire up` below this directory (/)",
    )
    for flag, type_ in (("--kubeconfig", Path), ("--context", str), ("--node-name", str), ("--state-dir", Path)):
        explain.add_argument(flag, type=type_, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    if arguments.check:
        return 0
    if arguments.action == "explain":
        return _explain(options, arguments)
    try:  # what cannot be used is told before anything runs
        credentials.ssl_context(network_driver.access_of(options))
    except (BadKubeconfig, OSError) as error:
        raise UserError(str(error)) from error
    if os.geteuid() != 0:
        raise UserError("needs root, for links and namespaces; try `sudo podwire network-driver`")
    return run_until_stopped(_work(options), arguments)


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
        found = load(path)
        Filter(found.offering.filter)
    except BadConfig as error:
        raise UserError(f"{path}: {error}") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    return found


def _explain(options: Options, arguments: argparse.Namespace) -> int:
    namespace, _, name = arguments.claim.rpartition("/")
    try:
        named = claim_explain.is_named(options)
        cluster = claim_explain.named(options) if named else claim_explain.found(arguments.prefix)
        on = "" if named else arguments.node_name
        for line in claim_explain.explain(cluster, namespace or arguments.namespace, name, on=on):
            say(line)
    except _NOT_EXPLAINED as error:
        raise UserError(str(error)) from error
    return 0


async def _work(options: Options) -> None:
    tune_garbage_collector()
    try:
        await network_driver.run(options)
    except* (ApiError, BadConfig, NriError, OSError) as failures:
        raise UserError(str(_first(failures))) from failures


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
