"""`podwire manifests`: what puts a part of podwire onto any cluster, as YAML for `kubectl apply -f -`."""

import argparse
import ipaddress
from pathlib import Path

import yaml

from podwire.cli.main import UserError
from podwire.cli.options import say
from podwire.dradriver.config import load
from podwire.dradriver.publish.manifests import Deployment, network_driver
from podwire.nriplugins.network.manifests import Settings, manifests
from podwire.protocols.settings import BadConfig

LONGEST_LINE = 110
STANDARD, DRIVER = Settings(), Deployment()


def configure(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    network = parts.add_parser("nri-network", help="the network plugin: definitions, identity, DaemonSet")
    network.add_argument("--image", default=STANDARD.image, help="an image that has podwire and nft (%(default)s)")
    _configure(network, STANDARD.namespace, STANDARD.port)
    driver = parts.add_parser(
        "network-driver", help="the network driver: identity, admission policies, device classes, DaemonSet"
    )
    driver.add_argument("--image", default=DRIVER.image, help="an image that has podwire (%(default)s)")
    _configure(driver, DRIVER.namespace, DRIVER.port)
    driver.add_argument(
        "--config", type=Path, metavar="FILE", help="what every node offers, and pools of addresses, in YAML"
    )


def _configure(parser: argparse.ArgumentParser, namespace: str, port: int) -> None:
    parser.add_argument("--namespace", default=namespace, help="where the DaemonSet is (%(default)s)")
    parser.add_argument("--port", type=int, default=port, help="of its pages on each node's loopback (%(default)s)")
    parser.add_argument(
        "--kubeconfig",
        default="",
        metavar="PATH",
        help="a file of every node, for clusters whose service accounts may not do enough",
    )
    parser.add_argument(
        "--api-server",
        type=_place,
        default=("", ""),
        metavar="HOST:PORT",
        help="for clusters whose nodes do not reach the Service of the API server",
    )


def run(arguments: argparse.Namespace) -> int:
    objects = _network_driver(arguments) if arguments.part == "network-driver" else _nri_network(arguments)
    say(yaml.dump_all(objects, Dumper=_Plain, sort_keys=False, width=LONGEST_LINE).rstrip())
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


def _text(path: Path) -> str:
    """Of a file that the driver can use: it is told here, not by pods that fail."""
    try:
        load(path)
        return path.read_text(encoding="utf-8")
    except BadConfig as error:
        raise UserError(f"{path}: {error}") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


class _Plain(yaml.SafeDumper):
    """What occurs twice is written twice, and what has lines is written in lines: people read it."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the same for all
        return True


def _lines(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Plain.add_representer(str, _lines)


def _place(text: str) -> tuple[str, str]:
    host, separator, port = text.rpartition(":")
    host = host.strip("[]")
    if not separator or not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT such as 192.0.2.1:6443")
    if ":" in host:
        ipaddress.ip_address(host)
    return host, port
