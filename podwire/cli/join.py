"""`podwire join`: makes this machine a node of a cluster."""

import argparse
import ipaddress
import json
import os
from pathlib import Path

from podwire import logs
from podwire.cli.main import UserError
from podwire.cli.options import add_output, https_server
from podwire.cli.progress import progress
from podwire.cluster.join import launch as joining
from podwire.cluster.join.machine_network import NotSupported
from podwire.cluster.join.preparation import JoinOptions, PreparedNode
from podwire.cluster.up import launch
from podwire.cluster.up.layout import BadPrefix, layout_of
from podwire.cluster.up.preparation import Refused
from podwire.cluster.up.slot_claims import SlotClaims
from podwire.cluster.up.state import BrokenState
from podwire.cluster.up.status_file import PrefixLocked
from podwire.cluster.up.stop import StillThere
from podwire.cluster.up.supervisor import Event
from podwire.durable.records import NewerFormat
from podwire.objects.names import dns_subdomain
from podwire.protocols.k8sapi.bootstrap_tokens import BadToken, Token, check_ca_hash

EPILOG = """\
examples:
  podwire join https://192.168.1.10:6443 --token abcdef.0123456789abcdef --ca-cert-hash sha256:…
  podwire join --detach            go on as the node that this machine is, for example after a reboot
  podwire leave                    remove everything

`podwire token create` on the first machine prints the whole command.
"""
VARIABLE = "PODWIRE_TOKEN"
"""The environment variable for a token: command lines can be read by all users of a machine."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("server", nargs="?", type=https_server, metavar="URL", help="API server of the cluster")
    parser.add_argument(
        "--token",
        type=_token,
        default=os.environ.get(VARIABLE),
        metavar="TOKEN",
        help=f"bootstrap token (default: ${VARIABLE})",
    )
    parser.add_argument(
        "--ca-cert-hash",
        "--discovery-token-ca-cert-hash",
        type=_hash,
        action="append",
        default=[],
        metavar="sha256:HEX",
        help="hash of the public key of the cluster's CA; repeatable",
    )
    parser.add_argument(
        "--unsafe-skip-ca-verification",
        action="store_true",
        help="trust any server that knows the token, instead of --ca-cert-hash",
    )
    parser.add_argument("--detach", action="store_true", help="return when the node is ready")
    node = parser.add_argument_group("node")
    node.add_argument("--node-name", type=_name, metavar="NAME", help="its name (default: the host name)")
    node.add_argument(
        "--node-ip",
        type=_addresses,
        default=(),
        metavar="IP[,IP]",
        help="its addresses (default: those on the segment of the API server, or of the default route)",
    )
    add_output(parser)
    parser.add_argument_group("logs").add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="of all components, until the next `join` (default: %(default)s)",
    )


def _token(text: str) -> Token:
    try:
        return Token.parse(text)
    except BadToken as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _hash(text: str) -> str:
    try:
        return check_ca_hash(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _name(text: str) -> str:
    if problems := dns_subdomain(text):
        raise argparse.ArgumentTypeError(f"{text!r}: {problems[0]}")
    return text


def _addresses(text: str) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_address(part)) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(arguments: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UserError("needs root, for namespaces, links and mounts; try `sudo podwire join`")
    is_verified = arguments.ca_cert_hash or arguments.unsafe_skip_ca_verification
    if arguments.server and arguments.token and not is_verified:
        raise UserError("--ca-cert-hash is missing: without it, this machine cannot tell the cluster from another one")
    os.environ[logs.LEVEL] = arguments.log_level
    wanted = JoinOptions(
        server=arguments.server or "",
        token=arguments.token,
        hashes=tuple(arguments.ca_cert_hash),
        node=arguments.node_name or "",
        addresses=arguments.node_ip,
    )
    try:
        layout = layout_of(Path("/"))
        with joining.held(layout, wanted, SlotClaims()) as (prepared, lock):
            events = _Events(prepared, as_json=arguments.output == "json")
            if arguments.detach:
                for event in launch.detach(prepared, lock, joining.supervise):
                    events(event)
                return 0 if events.is_up else 1
            return 0 if joining.supervise(prepared, lock, events) else 1
    except PrefixLocked as error:
        raise UserError(f"this machine is a node already (process {error.pid or 'unknown'})") from error
    except (BadPrefix, Refused, NotSupported, StillThere, BrokenState, NewerFormat, OSError) as error:
        raise UserError(str(error)) from error


class _Events:
    """Shows what happens, as `podwire up` does."""

    def __init__(self, prepared: PreparedNode, *, as_json: bool) -> None:
        self._prepared, self._as_json = prepared, as_json
        self.is_up = False
        out = open(os.devnull, "w", encoding="utf-8") if as_json else None  # noqa: SIM115, PTH123 - until the process ends
        self._show = progress(prepared.layout, joining.names(prepared), out)

    def __call__(self, event: Event) -> None:
        self._show(event)
        if event.component or event.what != "up":
            return
        self.is_up = True
        if self._as_json:
            print(json.dumps({"node": self._prepared.node, "server": self._prepared.server}, indent=2), flush=True)
            return
        print(f"node {self._prepared.node} of {self._prepared.server}; `podwire leave` removes it", flush=True)
