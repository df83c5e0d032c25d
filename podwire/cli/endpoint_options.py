"""Options of the HTTPS endpoints of the scheduler and the controllers."""

import argparse
from pathlib import Path

from podwire.cli.main import UserError
from podwire.cluster.component_endpoints import Endpoint


def add_endpoint(parser: argparse.ArgumentParser, port: int) -> None:
    """Options of the HTTPS endpoints of a component: metrics and health."""
    group = parser.add_argument_group("metrics and health")
    group.add_argument(
        "--secure-port",
        type=int,
        metavar="PORT",
        help=f"port of /metrics and /healthz (upstream's is {port}; default: none)",
    )
    group.add_argument(
        "--bind-address", default="127.0.0.1", metavar="IP", help="address of --secure-port (default: 127.0.0.1)"
    )
    group.add_argument("--tls-cert-file", type=Path, metavar="FILE", help="certificate of --secure-port")
    group.add_argument("--tls-private-key-file", type=Path, metavar="FILE", help="its key")


def endpoint_of(arguments: argparse.Namespace) -> Endpoint | None:
    """Returns the endpoint that `add_endpoint` describes. Raises UserError."""
    if arguments.secure_port is None:
        return None
    certificate, key = arguments.tls_cert_file, arguments.tls_private_key_file
    if certificate is None or key is None:
        raise UserError("--secure-port needs --tls-cert-file and --tls-private-key-file")
    return Endpoint(port=arguments.secure_port, address=arguments.bind_address, certificate=certificate, key=key)
