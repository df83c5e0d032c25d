"""`podwire kubelet`: runs the pods that are bound to this node."""

import argparse
import ipaddress
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cli.options import add_logging, run_until_stopped, seconds
from podwire.cluster.daemons import tune_memory
from podwire.cluster.kubelet import CNI_DIRS, BadEndpoint, Options, RunsAlready, socket_of
from podwire.cluster.kubelet import run as work
from podwire.durable.records import NewerFormat
from podwire.kubelet.devices import DeviceSettings
from podwire.kubelet.devices.settings import AT_ADMISSION, AT_START, DEFAULT
from podwire.kubelet.devices.topology import BEST_EFFORT, POLICIES
from podwire.kubelet.eviction.settings import EvictionSettings
from podwire.kubelet.eviction.thresholds import DEFAULT as DEFAULT_THRESHOLDS
from podwire.kubelet.eviction.thresholds import (
    Threshold,
    parse_grace_periods,
    parse_minimum_reclaim,
    parse_thresholds,
    soft,
)
from podwire.kubelet.images.credential_providers import BadProviders
from podwire.kubelet.images.garbage_collection import ImageGcSettings
from podwire.kubelet.log_rotation import LogSettings
from podwire.kubelet.node import default_name
from podwire.linux.machine import KernelMachine
from podwire.objects import quantity
from podwire.objects.nodes import Taint
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.transports import credentials
from podwire.transports.unix_sockets import CannotListen

ENDPOINT = "unix:///run/podwire/cri.sock"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", type=Path, required=True, metavar="FILE", help="kubeconfig with this node's identity"
    )
    parser.add_argument(
        "--container-runtime-endpoint",
        "--runtime",
        default=ENDPOINT,
        metavar="unix:///PATH",
        help="socket of the container runtime (default: %(default)s)",
    )
    parser.add_argument(
        "--hostname-override",
        "--node-name",
        metavar="NAME",
        help="name of the node (default: the host name in lower case)",
    )
    parser.add_argument(
        "--root-dir",
        type=Path,
        default=Path("/var/lib/kubelet"),
        metavar="DIR",
        help="volumes and state (default: %(default)s)",
    )
    parser.add_argument(
        "--pod-logs-dir",
        type=Path,
        default=Path("/var/log/pods"),
        metavar="DIR",
        help="logs of containers (default: %(default)s)",
    )
    parser.add_argument(
        "--cni-dir",
        type=Path,
        action="append",
        metavar="DIR",
        help="directory of CNI configurations or plugins; a change retries pods that wait for a network; "
        f"repeatable (default: {', '.join(map(str, CNI_DIRS))})",
    )
    parser.add_argument(
        "--pod-manifest-path",
        type=Path,
        metavar="DIR",
        help="directory of static pods: one Pod in each file, which runs here without an API server",
    )
    _configure_node(parser)
    _configure_images(parser)
    _configure_limits(parser)
    _configure_devices(parser)
    _configure_server(parser)
    add_logging(parser)


def _configure_node(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("node")
    group.add_argument("--node-ip", type=_addresses, default=(), metavar="IP[,IP]", help="addresses of the node")
    group.add_argument("--pod-cidr", type=_networks, default=(), metavar="CIDR[,CIDR]", help="addresses of its pods")
    group.add_argument(
        "--node-labels", type=node_labels, default={}, metavar="KEY=VALUE[,…]", help="labels of the node"
    )
    group.add_argument(
        "--register-with-taints",
        type=node_taints,
        default=(),
        metavar="KEY=VALUE:EFFECT[,…]",
        help="taints of the node",
    )
    group.add_argument(
        "--max-pods", type=int, default=110, metavar="N", help="number of pods at most (default: %(default)s)"
    )
    group.add_argument(
        "--fail-swap-on",
        choices=("true", "false"),
        default="true",
        help="refuse to start while the machine swaps: limits of memory do not hold then (default: %(default)s)",
    )
    group.add_argument(
        "--cluster-dns", type=_addresses, default=(), metavar="IP[,IP]", help="DNS servers of the cluster"
    )
    group.add_argument(
        "--cluster-domain",
        default="cluster.local",
        metavar="NAME",
        help="DNS domain of the cluster (default: %(default)s)",
    )
    group.add_argument(
        "--resolv-conf",
        type=Path,
        default=Path("/etc/resolv.conf"),
        metavar="FILE",
        help="resolver configuration of the node (default: %(default)s)",
    )


def _configure_images(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("images")
    group.add_argument(
        "--image-credential-provider-config",
        type=Path,
        metavar="PATH",
        help="file or directory with a CredentialProviderConfig: programs that have logins of registries",
    )
    group.add_argument(
        "--image-credential-provider-bin-dir", type=Path, metavar="DIR", help="directory of these programs"
    )
    for name, percent, what in (("high", 85, "above which unused images are removed"), ("low", 80, "down to which")):
        group.add_argument(
            f"--image-gc-{name}-threshold",
            type=int,
            default=percent,
            metavar="PERCENT",
            help=f"disk usage {what} (default: %(default)s)",
        )
    group.add_argument(
        "--minimum-image-ttl-duration",
        type=seconds,
        default=ImageGcSettings().min_age,
        metavar="SECONDS",
        help="age below which an unused image stays (default: %(default)s)",
    )
    group.add_argument(
        "--image-maximum-gc-age",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="time after which an unused image is removed whatever the disk usage; 0 for never (default: %(default)s)",
    )
    group.add_argument(
        "--image-gc-period",
        type=seconds,
        default=ImageGcSettings().period,
        metavar="SECONDS",
        help="time between two looks at the disk of images (default: %(default)s)",
    )


def _image_gc(arguments: argparse.Namespace) -> ImageGcSettings:
    try:
        return ImageGcSettings(
            high=arguments.image_gc_high_threshold,
            low=arguments.image_gc_low_threshold,
            min_age=arguments.minimum_image_ttl_duration,
            max_age=arguments.image_maximum_gc_age,
            period=arguments.image_gc_period,
        )
    except ValueError as error:
        raise UserError(str(error)) from error


def _configure_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits of pods")
    group.add_argument(
        "--pod-max-pids",
        type=int,
        default=4096,
        metavar="N",
        help="processes and threads of a pod at most; -1 for no limit (default: %(default)s)",
    )
    group.add_argument(
        "--eviction-hard",
        type=_thresholds,
        default=DEFAULT_THRESHOLDS,
        metavar="SIGNAL<QUANTITY[,…]",
        help="with less than this available, pods are evicted; empty for never (default: memory.available<100Mi,"
        "nodefs.available<10%%,nodefs.inodesFree<5%%,imagefs.available<15%%,imagefs.inodesFree<5%%)",
    )
    group.add_argument(
        "--eviction-soft",
        type=_thresholds,
        default=(),
        metavar="SIGNAL<QUANTITY[,…]",
        help="with less than this available for its grace period, pods are evicted (default: none)",
    )
    group.add_argument(
        "--eviction-soft-grace-period",
        type=_grace_periods,
        default={},
        metavar="SIGNAL=DURATION[,…]",
        help="grace period of each soft threshold, such as memory.available=1m30s",
    )
    group.add_argument(
        "--eviction-max-pod-grace-period",
        type=int,
        default=0,
        metavar="SECONDS",
        help="longest grace period of a pod that is evicted for a soft threshold (default: %(default)s)",
    )
    group.add_argument(
        "--eviction-minimum-reclaim",
        type=_minimum_reclaim,
        default={},
        metavar="SIGNAL=QUANTITY[,…]",
        help="pods are evicted until this much more than the threshold is available, such as nodefs.available=1Gi",
    )
    group.add_argument(
        "--eviction-pressure-transition-period",
        type=seconds,
        default=EvictionSettings().transition_period,
        metavar="SECONDS",
        help="how long a condition of pressure stays after it was last observed (default: %(default)s)",
    )
    group.add_argument(
        "--container-log-max-size",
        type=_bytes,
        default="10Mi",
        metavar="QUANTITY",
        help="size at which the log of a container is rotated; negative for never (default: %(default)s)",
    )
    group.add_argument(
        "--container-log-max-files",
        type=_files,
        default=5,
        metavar="N",
        help="files of one container's log, at least 2 (default: %(default)s)",
    )


def _configure_devices(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("devices of plugins")
    group.add_argument(
        "--device-allocate",
        choices=(AT_START, AT_ADMISSION),
        default=AT_START,
        help="when Allocate is called: before each container is created, or once for all containers before the "
        "sandbox is created (default: %(default)s)",
    )
    group.add_argument(
        "--topology-manager-policy",
        choices=POLICIES,
        default=BEST_EFFORT,
        help="NUMA alignment of the devices of a container (default: %(default)s)",
    )
    group.add_argument(
        "--device-plugin-grace",
        type=seconds,
        default=DEFAULT.grace,
        metavar="SECONDS",
        help="how long a resource stays on the node after its plugin ended (default: %(default)s)",
    )


def _configure_server(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server for logs, exec and attach")
    group.add_argument(
        "--address", type=_address, default="0.0.0.0", metavar="IP", help="address to listen on (default: %(default)s)"
    )
    group.add_argument("--port", type=int, default=10250, metavar="N", help="port to listen on (default: %(default)s)")
    group.add_argument(
        "--tls-cert-file",
        type=Path,
        metavar="FILE",
        help="serving certificate (default: self-signed, below the root directory)",
    )
    group.add_argument("--tls-private-key-file", type=Path, metavar="FILE", help="key of the certificate")
    group.add_argument(
        "--client-ca-file",
        type=Path,
        metavar="FILE",
        help="CA of client certificates (default: that of the kubeconfig)",
    )


def _credential_providers(arguments: argparse.Namespace) -> tuple[Path, Path] | None:
    config, directory = arguments.image_credential_provider_config, arguments.image_credential_provider_bin_dir
    if (config is None) != (directory is None):
        raise UserError("--image-credential-provider-config and --image-credential-provider-bin-dir need each other")
    return None if config is None else (config, directory)


def refuse_swap(machine: KernelMachine) -> None:
    """Raises UserError if the machine swaps."""
    if swaps := machine.swaps():
        raise UserError(
            "running with swap on is not supported, please disable swap or set --fail-swap-on to false: "
            f"{', '.join(swaps)}: a container could use memory beyond its limit"
        )


def run(arguments: argparse.Namespace) -> int:
    if arguments.fail_swap_on == "true":
        refuse_swap(KernelMachine())
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
        pod_pids=arguments.pod_max_pids,
        labels=arguments.node_labels,
        taints=arguments.register_with_taints,
        cni_dirs=tuple(arguments.cni_dir or CNI_DIRS),
        manifests=arguments.pod_manifest_path,
        tls_certificate=arguments.tls_cert_file,
        tls_key=arguments.tls_private_key_file,
        client_ca=arguments.client_ca_file,
        eviction_hard=arguments.eviction_hard,
        eviction=_eviction(arguments),
        logs=LogSettings(max_size=arguments.container_log_max_size, max_files=arguments.container_log_max_files),
        devices=DeviceSettings(
            allocate=arguments.device_allocate,
            grace=arguments.device_plugin_grace,
            topology=arguments.topology_manager_policy,
        ),
        credential_providers=_credential_providers(arguments),
        image_gc=_image_gc(arguments),
    )
    try:
        socket_of(options.runtime_endpoint)
        credentials.ssl_context(
            credentials.load(options.kubeconfig)
        )  # bad credentials are reported before anything runs
        return run_until_stopped(_work(options), arguments)
    except (OSError, BadKubeconfig, BadEndpoint, RunsAlready, CannotListen, NewerFormat, BadProviders) as error:
        raise UserError(str(error)) from error


async def _work(options: Options) -> None:
    tune_memory()
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


def _bytes(text: str) -> int:
    try:
        return quantity.parse(text).value()
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _eviction(arguments: argparse.Namespace) -> EvictionSettings:
    try:
        thresholds = soft(arguments.eviction_soft, arguments.eviction_soft_grace_period)
    except ValueError as error:
        raise UserError(f"--eviction-soft: {error}") from error
    return EvictionSettings(
        transition_period=arguments.eviction_pressure_transition_period,
        soft=thresholds,
        soft_grace=max(0, arguments.eviction_max_pod_grace_period),
        minimum_reclaim=arguments.eviction_minimum_reclaim,
    )


def _minimum_reclaim(text: str) -> dict[str, Threshold]:
    try:
        return parse_minimum_reclaim(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _grace_periods(text: str) -> dict[str, float]:
    try:
        return parse_grace_periods(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _thresholds(text: str) -> tuple[Threshold, ...]:
    try:
        return parse_thresholds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _files(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of at least 2")
    return int(text)


def node_labels(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",")]
    if wrong := [name for name, separator, _ in pairs if not name or not separator]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r}: expected KEY=VALUE")
    return {name: value for name, _, value in pairs}


EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def node_taints(text: str) -> tuple[Taint, ...]:
    return tuple(_taint(part) for part in text.split(","))


def _taint(text: str) -> Taint:
    head, _, effect = text.rpartition(":")
    key, _, value = head.partition("=")
    if not key or effect not in EFFECTS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected KEY=VALUE:EFFECT, an effect of {', '.join(EFFECTS)}")
    return Taint(key=key, value=value, effect=effect)
