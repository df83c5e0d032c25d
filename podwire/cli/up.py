"""`podwire up`: starts a cluster on this machine."""

import argparse
import ipaddress
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from podwire import logs
from podwire.cli.current_cluster import sudo_caller
from podwire.cli.main import UserError
from podwire.cli.options import (
    add_certificate_lifetime,
    add_controllers,
    add_output,
    add_prefix,
    cluster_flag,
    networks,
)
from podwire.cli.progress import progress
from podwire.cli.runtime import add_checking, checking
from podwire.cli.terminal import paint
from podwire.cluster.hardware.profile import BadProfile
from podwire.cluster.hardware.profile_yaml import load as load_profile
from podwire.cluster.join.settings import BACKENDS
from podwire.cluster.scheduler import read_configuration
from podwire.cluster.up import launch, named_clusters, state, status_file
from podwire.cluster.up.layout import BadPrefix, Layout, layout_of
from podwire.cluster.up.node_namespaces import NotBuilt
from podwire.cluster.up.preparation import Prepared, Refused, UpOptions, check_manifests
from podwire.cluster.up.slot_claims import NoSlot, SlotClaims
from podwire.cluster.up.state import BrokenState
from podwire.cluster.up.stop import StillThere
from podwire.cluster.up.supervisor import Event
from podwire.durable.locks import FileLock
from podwire.durable.records import NewerFormat
from podwire.linux.proc import processes
from podwire.linux.values import Network
from podwire.protocols.settings import BadConfig
from podwire.runtime.images.build import ROOT_REFERENCE
from podwire.scheduler.profiles import Configuration
from podwire.trace.otlp_endpoint import BadEndpoint, endpoint

if TYPE_CHECKING:
    from podwire.cluster.up.child import Component
    from podwire.dradriver.config import Config as NetworkDriver

PLUGINS = Path("/var/lib/podwire/cni/bin")


EPILOG = """\
examples:
  podwire up --detach                            one node, in the background
  podwire up --detach --name dev --nodes 3       three nodes, next to other clusters
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
    add_output(parser)
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
    _configure_network(parser.add_argument_group("network and devices"))
    parser.add_argument_group("logs").add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="of all components, until the next `up` (default: %(default)s)",
    )
    trace = parser.add_argument_group("trace")
    trace.add_argument("--ui", action="store_true", help="serve the live page, and print its link")
    trace.add_argument("--otlp", type=_endpoint, metavar="URL", help="send traces to an OpenTelemetry collector, too")


def _configure_network(network: argparse._ArgumentGroup) -> None:
    add_checking(network)
    network.add_argument(
        "--advertise-address",
        type=_advertised,
        metavar="IP|off",
        help="address of this machine at which others join the cluster (default: unchanged, or off)",
    )
    network.add_argument(
        "--machine-network",
        choices=BACKENDS,
        help="how packets go to pods of other machines; auto: routes on one segment, else VXLAN "
        "(default: unchanged, or auto)",
    )
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


def _advertised(text: str) -> str:
    if text == "off":
        return ""
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if address.is_loopback or address.is_unspecified or address.is_link_local or address.is_multicast:
        raise argparse.ArgumentTypeError(f"{text} is not an address at which other machines reach this one")
    return str(address)


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
            advertise=arguments.advertise_address,
            machine_network=arguments.machine_network,
            owner=sudo_caller(),
            **({"additional": _ui()} if arguments.ui else {}),
        )
        layout = layout_of(arguments.prefix)
        check_manifests(layout, wanted.manifests)
        report = Report(layout, as_json=arguments.output == "json")
        if launch.stop_for_more_nodes(layout, wanted):
            report.line("stopped to add nodes; pods keep running")
        with launch.held(layout, wanted, SlotClaims()) as (prepared, lock):
            report.placement(prepared)
            return _detached(prepared, lock, report) if arguments.detach else _attached(prepared, lock, report)
    except status_file.PrefixLocked as error:
        return _already(report, error)
    except BadConfig as error:
        raise UserError(f"--network-driver: {error}") from error
    except BadProfile as error:
        raise UserError(f"--hardware: {error}") from error
    except (BadPrefix, NoSlot, NotBuilt, Refused, StillThere, BrokenState, NewerFormat, OSError) as error:
        raise UserError(str(error)) from error


def _ui() -> "Callable[[Prepared], list[Component]]":
    from podwire.cli.ui_component import ui_component  # noqa: PLC0415 - only for those who want the page

    return ui_component


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


def _already(report: "Report", held: status_file.PrefixLocked) -> int:
    status = status_file.read(report.layout)
    if status is None or not status.up or status.pid != held.pid:
        raise UserError(f"{held}; wait for it, or `podwire down{cluster_flag(report.layout.prefix)}`") from held
    report.line(f"already up (process {held.pid})")
    report.up()
    return 0


def _attached(prepared: Prepared, lock: FileLock, report: "Report") -> int:
    def show(event: Event) -> None:
        report.event(event)
        if not event.component and event.what == "up":
            report.line("Ctrl-C stops the cluster and keeps its state")
            report.up()

    report.begin(launch.names(prepared))
    if not launch.supervise(prepared, lock, show):
        return 1
    flag = cluster_flag(prepared.layout.prefix)
    report.line(f"stopped; the state is kept: `podwire up{flag}` continues,")
    report.line(f"`podwire down{flag}` removes everything")
    return 0


def _detached(prepared: Prepared, lock: FileLock, report: "Report") -> int:
    report.begin(launch.names(prepared))
    up = False
    for event in launch.detach(prepared, lock, launch.supervise):
        report.event(event)
        up = up or (not event.component and event.what == "up")
    if not up:
        return 1
    report.up()
    return 0


def _page_link(layout: Layout) -> str:
    """Returns the link of the live page; empty without one."""
    if not (layout.run / "ui.link").exists():
        return ""
    from podwire.cli.ui_component import link_of  # noqa: PLC0415 - only for those who have the page

    return link_of(layout)


class Report:
    """Tells what `up` does, in text while it happens, or as one JSON object when the cluster is up."""

    def __init__(self, layout: Layout, *, as_json: bool) -> None:
        self.layout = layout
        self._as_json = as_json
        self._lines: Callable[[Event], None] = lambda _event: None

    def line(self, text: str) -> None:
        if not self._as_json:
            print(text, flush=True)

    def begin(self, names: Iterable[str]) -> None:
        """Takes the names of the components. A failure is reported on standard error also with JSON."""
        out = open(os.devnull, "w", encoding="utf-8") if self._as_json else None  # noqa: SIM115, PTH123 - until the process ends
        self._lines = progress(self.layout, names, out)

    def event(self, event: Event) -> None:
        self._lines(event)

    def placement(self, prepared: Prepared) -> None:
        for owner in prepared.owners:
            self.line(f"in use on the host: {owner}")
        names = [node.name for node in prepared.nodes]
        if len(names) > 1:
            where = f"nodes {names[0]} to {names[-1]} in their own namespaces"
        else:
            where = f"node {names[0]} {'in its own namespaces' if prepared.own else 'on the host itself'}"
        self.line(f"cluster below {self.layout.prefix}, slot {prepared.slot.number}: {where}")

    def up(self) -> None:
        """Prints how to go on, and last the time since this program was started."""
        layout, known = self.layout, state.load(self.layout.record)
        seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - processes.start_time(os.getpid()) / os.sysconf("SC_CLK_TCK")
        if self._as_json:
            result = {
                "prefix": str(layout.prefix),
                "name": named_clusters.name_of(layout.prefix),
                "kubeconfig": str(layout.kubeconfig),
                "context": named_clusters.context_of(layout),
                "nodes": [node.name for node in known.nodes] if known else [],
                "seconds": round(seconds, 3),
            }
            print(json.dumps(result, indent=2), flush=True)
            return
        print(f"kubeconfig  {layout.kubeconfig}")
        if known is not None and known.runtime == "podwire":
            print(f"image       {ROOT_REFERENCE}")
        elif known is not None:
            print(f"runtime     {known.runtime}, which finds networks in /etc/cni/net.d and plugins in {PLUGINS}")
        if link := _page_link(layout):
            print(f"page        {link}")
        print(f"next        podwire kubectl{cluster_flag(layout.prefix)} get nodes")
        print(f"{paint('ready', 'green')}       {seconds:.2f} s after `podwire up` was started", flush=True)
