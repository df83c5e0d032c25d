"""`podwire policy`: what NetworkPolicies make of packets."""

import argparse
import asyncio
import os
from pathlib import Path

import msgspec

from podwire.cli.main import UserError
from podwire.cli.options import say
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.inspect.policy_explain import explained
from podwire.nriplugins.network.policy.explain import Unknown
from podwire.nriplugins.network.policy.policies import Broken
from podwire.nriplugins.network.policy.values import PROTOCOLS
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError

WITHOUT_PORTS = "ICMP"
DENIED = 3
"""The exit code of a packet that does not pass."""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    explaining = verbs.add_parser(
        "explain",
        help="which policy and rule decides, in each direction",
        description="Which policy and rule decides on a connection, in each direction. "
        f"Exit code 0: it is allowed; {DENIED}: it is denied. A Service is judged by the address of its pod.",
    )
    explaining.add_argument("source", metavar="FROM", help="[NAMESPACE/]POD, or an address")
    explaining.add_argument("destination", metavar="TO", help="[NAMESPACE/]POD, or an address")
    explaining.add_argument("port", metavar="PORT[/PROTOCOL]", type=_port, help="80, 53/UDP, 80/SCTP, or ICMP")
    explaining.add_argument("--kubeconfig", type=Path, metavar="FILE", help="the API server ($KUBECONFIG, or PREFIX's)")
    explaining.add_argument("--context", default="", metavar="NAME", help="the kubeconfig's context (its current one)")
    explaining.add_argument(
        "--prefix", type=Path, default=Path("/"), metavar="DIR", help="below which a cluster of `podwire up` is (/)"
    )
    explaining.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    port, protocol = arguments.port
    asked = explained(
        _kubeconfig(arguments), arguments.source, arguments.destination, port, protocol, context=arguments.context
    )
    try:
        found = asyncio.run(asked)
    except (BadKubeconfig, ApiError, ClientError, Unknown, Broken, OSError) as error:
        raise UserError(str(error)) from error
    text = str(found) if arguments.output == "text" else msgspec.json.encode(found, enc_hook=str).decode()
    say(text)
    return 0 if found.allowed else DENIED


def _kubeconfig(arguments: argparse.Namespace) -> Path:
    if arguments.kubeconfig is not None:
        return Path(arguments.kubeconfig)
    if arguments.prefix == Path("/") and (told := os.environ.get("KUBECONFIG")):
        return Path(told)
    try:
        return layout_of(arguments.prefix).kubeconfig
    except BadPrefix as error:
        raise UserError(str(error)) from error


def _port(text: str) -> tuple[int, str]:
    if text.upper() == WITHOUT_PORTS:
        return 0, WITHOUT_PORTS
    port, _, protocol = text.partition("/")
    protocol = protocol.upper() or "TCP"
    if not port.isdecimal() or not 1 <= int(port) <= 65535 or protocol not in PROTOCOLS:
        raise argparse.ArgumentTypeError(f"{text!r} is no PORT[/PROTOCOL] such as 80, 53/UDP or 80/SCTP, nor ICMP")
    return int(port), protocol
