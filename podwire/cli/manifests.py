"""`podwire manifests`: prints manifests that install a component on any cluster, for `kubectl apply -f -`."""

import argparse
import ipaddress
from collections.abc import Callable
from pathlib import Path

import yaml

from podwire.cli.main import UserError
from podwire.cli.options import write_line
from podwire.cluster.removal import HOST, removing
from podwire.cniplugins import manifests as cni
from podwire.deviceplugin import load as load_pools
from podwire.deviceplugin import manifests as device_plugin
from podwire.dradriver.config import load as load_driver
from podwire.dradriver.publish.manifests import Deployment, network_driver
from podwire.linux.fs.regular_files import read_head
from podwire.nriplugins.network import admin_crds
from podwire.nriplugins.network.manifests import Settings, manifests
from podwire.protocols.cni.config import parse_list
from podwire.protocols.cni.errors import CniError
from podwire.protocols.settings import BadConfig

LONGEST_LINE = 110
STANDARD, DRIVER, CNI, DEVICES = Settings(), Deployment(), cni.Settings(), device_plugin.Settings()
LONGEST_FILE = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    network = parts.add_parser("nri-network", help="Print the network plugin: CRDs, RBAC, DaemonSet")
    network.add_argument("--image", default=STANDARD.image, help="image with podwire and nft (default: %(default)s)")
    _configure(network, STANDARD.namespace, STANDARD.port)
    parts.add_parser("admin-network-policy", help="Print the CRDs of AdminNetworkPolicy and BaselineAdminNetworkPolicy")
    driver = parts.add_parser(
        "network-driver", help="Print the network driver: RBAC, admission policies, device classes, DaemonSet"
    )
    driver.add_argument("--image", default=DRIVER.image, help="image with podwire (default: %(default)s)")
    _configure(driver, DRIVER.namespace, DRIVER.port)
    driver.add_argument("--config", type=Path, metavar="FILE", help="YAML configuration of the driver")
    plugins = parts.add_parser("cni-plugins", help="Print the CNI plugins: DaemonSet that installs and serves them")
    plugins.add_argument("--image", default=CNI.image, help="image with podwire and nft (default: %(default)s)")
    plugins.add_argument("--namespace", default=CNI.namespace, help="namespace of the DaemonSet (default: %(default)s)")
    plugins.add_argument("--network", type=Path, metavar="FILE", help="network configuration list for all nodes")
    plugins.add_argument(
        "--network-name", default=CNI.network_name, metavar="NAME", help="name of its file (default: %(default)s)"
    )
    plugins.add_argument("--bin-dir", default=CNI.bin_dir, metavar="DIR", help="CNI plugins (default: %(default)s)")
    plugins.add_argument("--conf-dir", default=CNI.conf_dir, metavar="DIR", help="networks (default: %(default)s)")
    plugins.add_argument("--force", action="store_true", help="overwrite plugins of others with the same names")
    devices = parts.add_parser("device-plugin", help="Print the device plugin: pools, DaemonSet")
    devices.add_argument("--image", default=DEVICES.image, help="image with podwire (default: %(default)s)")
    devices.add_argument(
        "--namespace", default=DEVICES.namespace, help="namespace of the DaemonSet (default: %(default)s)"
    )
    devices.add_argument(
        "--port",
        type=int,
        default=DEVICES.port,
        help="port of /metrics, /healthz and /readyz on the loopback of each node (default: %(default)s)",
    )
    devices.add_argument("--config", type=Path, metavar="FILE", help="YAML file with the pools (default: /dev/net/tun)")
    for part in (network, driver, plugins, devices):
        part.add_argument(
            "--remove", action="store_true", help="print a DaemonSet that removes what the component left on each node"
        )


def _configure(parser: argparse.ArgumentParser, namespace: str, port: int) -> None:
    parser.add_argument("--namespace", default=namespace, help="namespace of the DaemonSet (default: %(default)s)")
    parser.add_argument(
        "--port",
        type=int,
        default=port,
        help="port of /metrics, /healthz and /readyz on the loopback of each node (default: %(default)s)",
    )
    parser.add_argument(
        "--kubeconfig",
        default="",
        metavar="PATH",
        help="file on every node, instead of the service account",
    )
    parser.add_argument(
        "--api-server",
        type=_host_and_port,
        default=("", ""),
        metavar="HOST:PORT",
        help="address of the API server, for nodes that do not reach its Service",
    )


def run(arguments: argparse.Namespace) -> int:
    objects = _PARTS[arguments.part](arguments)
    if getattr(arguments, "remove", False):
        command = _removal_command(arguments)
        objects = [removing(object_, command) if object_["kind"] == "DaemonSet" else object_ for object_ in objects]
    write_line(yaml.dump_all(objects, Dumper=_Plain, sort_keys=False, width=LONGEST_LINE).rstrip())
    return 0


def _nri_network(arguments: argparse.Namespace) -> list[dict[str, object]]:
    host, port = arguments.api_server
    return manifests(
        Settings(
            image=arguments.image,
            namespace=arguments.namespace,
            port=arguments.port,
            kubeconfig=arguments.kubeconfig,
            api_host=host,
            api_port=port,
        )
    )


def _network_driver(arguments: argparse.Namespace) -> list[dict[str, object]]:
    host, port = arguments.api_server
    return network_driver(
        Deployment(
            image=arguments.image,
            namespace=arguments.namespace,
            port=arguments.port,
            config=_text(arguments.config) if arguments.config else DRIVER.config,
            kubeconfig=arguments.kubeconfig,
            api_host=host,
            api_port=port,
        )
    )


def _admin_network_policy(_arguments: argparse.Namespace) -> list[dict[str, object]]:
    return [*admin_crds.ALL]


def _cni_settings(arguments: argparse.Namespace) -> cni.Settings:
    return cni.Settings(
        image=arguments.image,
        namespace=arguments.namespace,
        bin_dir=arguments.bin_dir,
        conf_dir=arguments.conf_dir,
        network=_network(arguments.network) if arguments.network else "",
        network_name=arguments.network_name,
        force=arguments.force,
    )


def _cni_plugins(arguments: argparse.Namespace) -> list[dict[str, object]]:
    return cni.manifests(_cni_settings(arguments))


def _device_plugin(arguments: argparse.Namespace) -> list[dict[str, object]]:
    return device_plugin.manifests(
        device_plugin.Settings(
            image=arguments.image,
            namespace=arguments.namespace,
            port=arguments.port,
            pools=_text(arguments.config, load_pools) if arguments.config else DEVICES.pools,
        )
    )


def _removal_command(arguments: argparse.Namespace) -> list[str]:
    if arguments.part == "cni-plugins":
        return cni.removal_command(_cni_settings(arguments), HOST)
    in_root = ["--root", HOST] if arguments.part != "nri-network" else []  # its rules are in the kernel
    return ["podwire", arguments.part, "--remove", *in_root]


_PARTS = {
    "cni-plugins": _cni_plugins,
    "device-plugin": _device_plugin,
    "nri-network": _nri_network,
    "network-driver": _network_driver,
    "admin-network-policy": _admin_network_policy,
}


def _network(path: Path) -> str:
    try:
        data = read_head(path, LONGEST_FILE, follow=True)
        parse_list(data, str(path))
        return data.decode()
    except (CniError, ValueError) as error:
        raise UserError(f"{path}: {error}") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


def _text(path: Path, load: Callable[[Path], object] = load_driver) -> str:
    """Returns a file after validation, so that errors are reported here and not by failing pods."""
    try:
        load(path)
        return path.read_text(encoding="utf-8")
    except BadConfig as error:
        raise UserError(f"{path}: {error}") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


class _Plain(yaml.SafeDumper):
    """Writes repeated values without anchors, and multi-line strings as blocks."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the same for all
        return True


def _lines(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Plain.add_representer(str, _lines)


def _host_and_port(text: str) -> tuple[str, str]:
    host, separator, port = text.rpartition(":")
    host = host.strip("[]")
    if not separator or not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT such as 192.0.2.1:6443")
    if ":" in host:
        ipaddress.ip_address(host)
    return host, port
