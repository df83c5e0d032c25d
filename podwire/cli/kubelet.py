"""`podwire kubelet`: run the pods that are bound to this node."""

import argparse
import ipaddress
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_logging, run_until_stopped, seconds
from podwire.cluster.daemons import tune_garbage_collector
from podwire.cluster.kubelet import CNI_DIRS, BadEndpoint, Options, RunsAlready, socket_of
from podwire.cluster.kubelet import run as work
from podwire.durable.records import NewerFormat
from podwire.kubelet.devices import DeviceSettings
from podwire.kubelet.devices.settings import AT_ADMISSION, AT_START, DEFAULT
from podwire.kubelet.devices.topology import BEST_EFFORT, POLICIES
from podwire.kubelet.node import default_name
from podwire.objects.nodes import Taint
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.transports import credentials
from podwire.transports.unix_sockets import CannotListen

ENDPOINT = "unix:///run/podwire/cri.sock"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", type=Path, required=True, metavar="FILE", help="the API server, and this node's identity"
    )
    parser.add_argument(
        "--container-runtime-endpoint",
        "--runtime",
        default=ENDPOINT,
        metavar="unix:///PATH",
        help="the container runtime's socket (%(default)s)",
    )
    parser.add_argument(
        "--hostname-override", "--node-name", metavar="NAME", help="the node's name (the host's, in lower case)"
    )
    parser.add_argument(
        "--root-dir", type=Path, default=Path("/var/lib/kubelet"), metavar="DIR", help="volumes and state (%(default)s)"
    )
    parser.add_argument(
        "--pod-logs-dir", type=Path, default=Path("/var/log/pods"), metavar="DIR", help="containers' logs (%(default)s)"
    )
    parser.add_argument(
        "--cni-dir",
        type=Path,
        action="append",
        metavar="DIR",
        help="network configurations or plugins: when they change, pods that wait for a network try again; "
        f"may be given again ({', '.join(map(str, CNI_DIRS))})",
    )
    _configure_node(parser)
    _configure_devices(parser)
    _configure_server(parser)
    add_logging(parser)


def _configure_node(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the node")
    group.add_argument("--node-ip", type=_addresses, default=(), metavar="IP[,IP]", help="its addresses")
    group.add_argument("--pod-cidr", type=_networks, default=(), metavar="CIDR[,CIDR]", help="its pods' addresses")
    group.add_argument("--node-labels", type=_labels, default={}, metavar="KEY=VALUE[,…]")
    group.add_argument("--register-with-taints", type=_taints, default=(), metavar="KEY=VALUE:EFFECT[,…]")
    group.add_argument("--max-pods", type=int, default=110, metavar="N", help="how many pods it takes (%(default)s)")
    group.add_argument(
        "--cluster-dns", type=_addresses, default=(), metavar="IP[,IP]", help="the cluster's DNS servers"
    )
    group.add_argument("--cluster-domain", default="cluster.local", metavar="NAME", help="(%(default)s)")
    group.add_argument(
        "--resolv-conf",
        type=Path,
        default=Path("/etc/resolv.conf"),
        metavar="FILE",
        help="the node's own (%(default)s)",
    )


def _configure_devices(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("devices, which plugins bring that register below the root directory")
    group.add_argument(
        "--device-allocate",
        choices=(AT_START, AT_ADMISSION),
        default=AT_START,
        help="when a plugin is asked to allocate: before each container is made, or once for a whole pod before its "
        "sandbox is (%(default)s)",
    )
    group.add_argument(
        "--topology-manager-policy",
        choices=POLICIES,
        default=BEST_EFFORT,
        help="how near to one NUMA node the devices of a container have to be; a pod whose devices are not, fails "
        "(%(default)s)",
    )
    group.add_argument(
        "--device-plugin-grace",
        type=seconds,
        default=DEFAULT.grace,
        metavar="SECONDS",
        help="how long the node names a resource whose plugin has gone (%(default)s)",
    )


def _configure_server(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the server for logs, exec and attach")
    group.add_argument(
        "--address", type=_address, default="0.0.0.0", metavar="IP", help="where it listens (%(default)s)"
    )
    group.add_argument("--port", type=int, default=10250, metavar="N", help="(%(default)s)")
    group.add_argument(
        "--tls-cert-file", type=Path, metavar="FILE", help="(a self-signed one below the root directory)"
    )
    group.add_argument("--tls-private-key-file", type=Path, metavar="FILE")
    group.add_argument("--client-ca-file", type=Path, metavar="FILE", help="who signs for its callers")


def run(arguments: argparse.Namespace) -> int:
    options = Options(
        kubeconfig=arguments.kubeconfig,
        runtime_endpoint=arguments.container_runtime_endpoint,
        node_name=arguments.hostname_override or default_name(),
        root_dir=arguments.root_dir,
        pod_logs_dir=arguments.pod_logs_dir,
        address=arguments.address,
        port=arguments.port,
        node_ips=arguments.node_ip,
        pod_cidrs=arguments.pod_cidr,
        cluster_dns=arguments.cluster_dns,
        cluster_domain=arguments.cluster_domain,
        resolv_conf=arguments.resolv_conf,
        max_pods=arguments.max_pods,
        labels=arguments.node_labels,
        taints=arguments.register_with_taints,
        cni_dirs=tuple(arguments.cni_dir or CNI_DIRS),
        tls_certificate=arguments.tls_cert_file,
        tls_key=arguments.tls_private_key_file,
        client_ca=arguments.client_ca_file,
        devices=DeviceSettings(
            allocate=arguments.device_allocate,
            grace=arguments.device_plugin_grace,
            topology=arguments.topology_manager_policy,
        ),
    )
    try:
        socket_of(options.runtime_endpoint)
        credentials.ssl_context(
            credentials.load(options.kubeconfig)
        )  # what cannot be used is told before anything runs
        return run_until_stopped(_work(options), arguments)
    except (OSError, BadKubeconfig, BadEndpoint, RunsAlready, CannotListen, NewerFormat) as error:
        raise UserError(str(error)) from error


async def _work(options: Options) -> None:
    tune_garbage_collector()
    await work(options)


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _addresses(text: str) -> tuple[str, ...]:
    return tuple(_address(part) for part in text.split(","))


def _networks(text: str) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_network(part)) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _labels(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",")]
    if wrong := [name for name, separator, _ in pairs if not name or not separator]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r}: expected KEY=VALUE")
    return {name: value for name, _, value in pairs}


EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _taints(text: str) -> tuple[Taint, ...]:
    return tuple(_taint(part) for part in text.split(","))


def _taint(text: str) -> Taint:
    head, _, effect = text.rpartition(":")
    key, _, value = head.partition("=")
    if not key or effect not in EFFECTS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected KEY=VALUE:EFFECT, an effect of {', '.join(EFFECTS)}")
    return Taint(key=key, value=value, effect=effect)
