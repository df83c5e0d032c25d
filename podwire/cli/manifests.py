"""`podwire manifests`: what puts a part of podwire onto any cluster, as YAML for `kubectl apply -f -`."""

import argparse
import ipaddress

import yaml

from podwire.cli.options import say
from podwire.nriplugins.network.manifests import Settings, manifests

STANDARD = Settings()


def configure(parser: argparse.ArgumentParser) -> None:
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    network = parts.add_parser("nri-network", help="the network plugin: definitions, identity, DaemonSet")
    network.add_argument("--image", default=STANDARD.image, help="an image that has podwire and nft (%(default)s)")
    network.add_argument("--namespace", default=STANDARD.namespace, help="where the DaemonSet is (%(default)s)")
    network.add_argument(
        "--port", type=int, default=STANDARD.port, help="of its pages on each node's loopback (%(default)s)"
    )
    network.add_argument(
        "--kubeconfig",
        default="",
        metavar="PATH",
        help="a file of every node, for clusters whose service accounts may not see enough",
    )
    network.add_argument(
        "--api-server",
        type=_place,
        default=("", ""),
        metavar="HOST:PORT",
        help="for clusters whose nodes do not reach the Service of the API server",
    )


def run(arguments: argparse.Namespace) -> int:
    host, port = arguments.api_server
    settings = Settings(
        image=arguments.image,
        namespace=arguments.namespace,
        port=arguments.port,
        kubeconfig=arguments.kubeconfig,
        api_host=host,
        api_port=port,
    )
    say(yaml.dump_all(manifests(settings), Dumper=_Plain, sort_keys=False).rstrip())
    return 0


class _Plain(yaml.SafeDumper):
    """What occurs twice is written twice: people read it."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the same for all
        return True


def _place(text: str) -> tuple[str, str]:
    host, separator, port = text.rpartition(":")
    host = host.strip("[]")
    if not separator or not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT such as 192.0.2.1:6443")
    if ":" in host:
        ipaddress.ip_address(host)
    return host, port
