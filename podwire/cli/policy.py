"""`podwire policy`: explains decisions of NetworkPolicies."""

import argparse
import asyncio
from pathlib import Path

import msgspec

from podwire.cli.kubeconfig import kubeconfig_files
from podwire.cli.main import UserError
from podwire.cli.options import add_prefix, write_line
from podwire.inspect.policy_explain import explained
from podwire.nriplugins.network.policy.explain import Unknown
from podwire.nriplugins.network.policy.policies import Broken
from podwire.nriplugins.network.policy.values import PROTOCOLS
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.kubeconfig import BadKubeconfig
from podwire.protocols.k8sapi.status import ApiError

WITHOUT_PORTS = "ICMP"
DENIED = 3
"""The exit code for a denied connection."""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    explaining = verbs.add_parser(
        "explain",
        help="Explain which policy and rule decides, in each direction",
        description="Explain which policy and rule decides on a connection, in each direction. "
        f"Exit code 0: allowed; {DENIED}: denied. For a Service, use the address of its pod.",
    )
    explaining.add_argument("source", metavar="FROM", help="[NAMESPACE/]POD, or an address")
    explaining.add_argument("destination", metavar="TO", help="[NAMESPACE/]POD, or an address")
    explaining.add_argument("port", metavar="PORT[/PROTOCOL]", type=_port, help="80, 53/UDP, 80/SCTP, or ICMP")
    explaining.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="kubeconfig (default: $KUBECONFIG, or that of the cluster)"
    )
    explaining.add_argument(
        "--context", default="", metavar="NAME", help="context of the kubeconfig (default: its current one)"
    )
    add_prefix(explaining)
    explaining.add_argument("-o", "--output", choices=("text", "json"), default="text")


def run(arguments: argparse.Namespace) -> int:
    port, protocol = arguments.port
    files = kubeconfig_files(arguments)
    explanation = explained(files, arguments.source, arguments.destination, port, protocol, context=arguments.context)
    try:
        result = asyncio.run(explanation)
    except (BadKubeconfig, ApiError, ClientError, Unknown, Broken, OSError) as error:
        raise UserError(str(error)) from error
    if arguments.output == "text":
        write_line(str(result))
    else:
        document = msgspec.to_builtins(result.verdict, enc_hook=str) | {"enforced": result.enforced}
        write_line(msgspec.json.encode(document).decode())
    return 0 if result.verdict.allowed else DENIED


def _port(text: str) -> tuple[int, str]:
    if text.upper() == WITHOUT_PORTS:
        return 0, WITHOUT_PORTS
    port, _, protocol = text.partition("/")
    protocol = protocol.upper() or "TCP"
    if not port.isdecimal() or not 1 <= int(port) <= 65535 or protocol not in PROTOCOLS:
        raise argparse.ArgumentTypeError(f"{text!r} is not PORT[/PROTOCOL] such as 80, 53/UDP or 80/SCTP, or ICMP")
    return int(port), protocol
