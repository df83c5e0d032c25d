"""`podwire up`: starts a cluster on this machine."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from podwire import logs
from podwire.cli.main import UserError
from podwire.cli.options import add_certificate_lifetime, add_controllers, add_prefix, networks
from podwire.cli.progress import progress
from podwire.cli.runtime import add_checking, checking
from podwire.cluster.hardware.profile import BadProfile
from podwire.cluster.hardware.profile_yaml import load as load_profile
from podwire.cluster.scheduler import read_configuration
from podwire.cluster.up import launch, state, status_file
from podwire.cluster.up.layout import BadPrefix, Layout, layout_of
from podwire.cluster.up.node_namespaces import NotBuilt
from podwire.cluster.up.preparation import Prepared, Refused, UpOptions, check_manifests
from podwire.cluster.up.slot_claims import NoSlot, SlotClaims
from podwire.cluster.up.state import BrokenState
from podwire.cluster.up.stop import StillThere
from podwire.cluster.up.supervisor import Event
from podwire.durable.locks import FileLock
from podwire.durable.records import NewerFormat
from podwire.linux.values import Network
from podwire.protocols.settings import BadConfig
from podwire.runtime.images.build import ROOT_REFERENCE
from podwire.scheduler.profiles import Configuration
from podwire.trace.otlp_endpoint import BadEndpoint, endpoint

if TYPE_CHECKING:
    from podwire.dradriver.config import Config as NetworkDriver

PLUGINS = Path("/var/lib/podwire/cni/bin")


EPILOG = """\
examples:
  podwire up --detach                            one node, in the background
  podwire up --detach --prefix /srv/pw --nodes 3 three nodes, next to other clusters
  podwire up --hardware two-numa                 with simulated network cards and GPUs
  podwire up --runtime unix:///run/containerd/containerd.sock
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument(
        "--detach", action="store_true", help="return when all nodes are ready, and run in the background"
    )
    add_prefix(parser)
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--nodes", type=int, metavar="N", help="number of nodes, 1 to 16 (default: unchanged, or 1)")
    cluster.add_argument(
        "--store",
        metavar="URL",
        help="store of the API server: sqlite://, memory:// or etcd://HOST:PORT[,…] (default: sqlite://)",
    )
    cluster.add_argument(
        "--encryption-provider-config",
        type=lambda path: Path(path).absolute(),
        metavar="FILE",
        help="EncryptionConfiguration of the API server; to be given at each start (default: none)",
    )
    add_certificate_lifetime(cluster)
    add_controllers(cluster)
    cluster.add_argument(
        "--scheduler-config",
        type=Path,
        metavar="FILE",
        help="KubeSchedulerConfiguration of the scheduler; to be given at each start (default: none)",
    )
    cluster.add_argument(
        "--runtime",
        type=_runtime,
        metavar="RUNTIME",
        help="podwire, or unix:///… of a running CRI runtime (default: podwire)",
    )
    cluster.add_argument(
        "--pod-manifest-path",
        type=lambda path: Path(path).resolve(),
        metavar="DIR",
        help="directory of static pods, which run on each node; to be given at each start (default: none)",
    )
    network = parser.add_argument_group("network and devices")
    add_checking(network)
    network.add_argument(
        "--network-policy",
        choices=("on", "off"),
        default="on",
        help="enforce NetworkPolicies on all nodes; off: a warning tells who creates one (default: %(default)s)",
    )
    network.add_argument(
        "--load-balancer-pool",
        type=_pool,
        metavar="CIDR[,…]|off",
        help="addresses for Services of type LoadBalancer, on the network of the nodes "
        "(default: a part of it, or off where the node is on the host itself)",
    )
    network.add_argument(
        "--hardware",
        metavar="PROFILE",
        help="simulated network cards and GPUs: a YAML file, or a profile of `podwire hardware profiles`",
    )
    network.add_argument(
        "--network-driver",
        nargs="?",
        const="",
        metavar="FILE",
        help="run `podwire network-driver` on each node, with an optional YAML file",
    )
    parser.add_argument_group("logs").add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="of all components, until the next `up` (default: %(default)s)",
    )
    trace = parser.add_argument_group("trace")
    trace.add_argument("--otlp", type=_endpoint, metavar="URL", help="send traces to an OpenTelemetry collector, too")


def _pool(text: str) -> tuple[Network, ...]:
    return () if text == "off" else networks(text)


def run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UserError("needs root, for namespaces, links and mounts; try `sudo podwire up`")
    os.environ[logs.LEVEL] = arguments.log_level
    try:
        wanted = UpOptions(
            runtime=arguments.runtime,
            store=arguments.store,
            nodes=arguments.nodes,
            otlp=arguments.otlp or "",
            hardware=load_profile(arguments.hardware) if arguments.hardware else None,
            checking=checking(arguments),
            network_driver=_network_driver(arguments.network_driver),
            encryption_config=arguments.encryption_provider_config,
            certificate_lifetime=arguments.certificate_lifetime,
            controllers=arguments.controllers,
            network_policy=arguments.network_policy == "on",
            balancer_pool=arguments.load_balancer_pool,
            scheduling=_scheduling(arguments.scheduler_config),
            manifests=arguments.pod_manifest_path,
        )
        layout = layout_of(arguments.prefix)
        check_manifests(layout, wanted.manifests)
        if launch.stop_for_more_nodes(layout, wanted):
            print("stopped to add nodes; pods keep running", flush=True)
        with launch.held(layout, wanted, SlotClaims()) as (prepared, lock):
            _print_placement(prepared)
            return _detached(prepared, lock) if arguments.detach else _attached(prepared, lock)
    except status_file.PrefixLocked as error:
        return _already(layout, error)
    except BadConfig as error:
        raise UserError(f"--network-driver: {error}") from error
    except BadProfile as error:
        raise UserError(f"--hardware: {error}") from error
    except (BadPrefix, NoSlot, NotBuilt, Refused, StillThere, BrokenState, NewerFormat, OSError) as error:
        raise UserError(str(error)) from error


def _scheduling(file: Path | None) -> Configuration:
    try:
        return read_configuration(file) if file else Configuration()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"--scheduler-config: {file}: {why}") from error


def _network_driver(file: str | None) -> "NetworkDriver | None":
    """Raises BadConfig, OSError."""
    if file is None:
        return None
    from podwire.dradriver.config import Config, load  # noqa: PLC0415 - only for those who want the driver

    return load(Path(file)) if file else Config()


def _runtime(text: str) -> str:
    if text != "podwire" and not text.startswith("unix:///"):
        raise argparse.ArgumentTypeError(f"{text!r} must be podwire or unix:///…")
    return text


def _endpoint(text: str) -> str:
    try:
        return endpoint(text)
    except BadEndpoint as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _already(layout: Layout, held: status_file.PrefixLocked) -> int:
    status = status_file.read(layout)
    if status is None or not status.up or status.pid != held.pid:
        raise UserError(f"{held}; wait for it, or `podwire down{_flag(layout)}`") from held
    print(f"already up (process {held.pid})")
    _print_next_steps(layout)
    return 0


def _attached(prepared: Prepared, lock: FileLock) -> int:
    lines = progress(prepared.layout, launch.names(prepared))

    def report(event: Event) -> None:
        lines(event)
        if not event.component and event.what == "up":
            _print_next_steps(prepared.layout)
            print("Ctrl-C stops the cluster and keeps its state", flush=True)

    if not launch.supervise(prepared, lock, report):
        return 1
    print(f"stopped; the state is kept: `podwire up{_flag(prepared.layout)}` continues,", flush=True)
    print(f"`podwire down{_flag(prepared.layout)}` removes everything")
    return 0


def _detached(prepared: Prepared, lock: FileLock) -> int:
    lines = progress(prepared.layout, launch.names(prepared))
    up = False
    for event in launch.detach(prepared, lock):
        lines(event)
        up = up or (not event.component and event.what == "up")
    if not up:
        return 1
    _print_next_steps(prepared.layout)
    return 0


def _print_placement(prepared: Prepared) -> None:
    layout, slot = prepared.layout, prepared.slot
    for owner in prepared.owners:
        print(f"in use on the host: {owner}", flush=True)
    names = [node.name for node in prepared.nodes]
    if len(names) > 1:
        where = f"nodes {names[0]} to {names[-1]} in their own namespaces"
    else:
        where = f"node {names[0]} {'in its own namespaces' if prepared.own else 'on the host itself'}"
    print(f"cluster below {layout.prefix}, slot {slot.number}: {where}", flush=True)


def _print_next_steps(layout: Layout) -> None:
    known = state.load(layout.record)
    print(f"kubeconfig  {layout.kubeconfig}")
    if known is not None and known.runtime == "podwire":
        print(f"image       {ROOT_REFERENCE}")
    elif known is not None:
        print(f"runtime     {known.runtime}, which finds networks in /etc/cni/net.d and plugins in {PLUGINS}")
    print(f"next        kubectl --kubeconfig {layout.kubeconfig} get nodes", flush=True)


def _flag(layout: Layout) -> str:
    return "" if layout.is_default else f" --prefix {layout.prefix}"
