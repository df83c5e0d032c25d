"""`podwire controllers`: runs the controllers against any API server."""

import argparse
import os
import uuid
from pathlib import Path

from podwire.cli.endpoint_options import add_endpoint, endpoint_of
from podwire.cli.main import UserError
from podwire.cli.options import (
    add_balancer_pool,
    add_cluster_cidr,
    add_controllers,
    add_leader_election,
    add_logging,
    pod_networks,
    run_until_stopped,
)
from podwire.cluster.component_endpoints import Endpoint
from podwire.cluster.controllers import KeyFiles, Keys, over_http
from podwire.cluster.daemons import tune_memory
from podwire.controllers.leader_election import Election, identity_of
from podwire.linux.values import Network
from podwire.objects.pod_networks import PodNetwork
from podwire.protocols.k8sapi.kubeconfig import Access, BadKubeconfig
from podwire.transports import credentials


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", required=True, metavar="FILE", help="kubeconfig with the cluster-admin role")
    parser.add_argument(
        "--context", default="", metavar="NAME", help="context of the kubeconfig (default: its current one)"
    )
    parser.add_argument(
        "--root-ca-file",
        type=Path,
        metavar="FILE",
        help="CA that is distributed to pods (default: that of the kubeconfig)",
    )
    signing = parser.add_argument_group("keys; without them, the controllers that sign are off")
    signing.add_argument(
        "--cluster-signing-cert-file", type=Path, metavar="FILE", help="CA that signs certificate requests, in PEM"
    )
    signing.add_argument("--cluster-signing-key-file", type=Path, metavar="FILE", help="private key of this CA, in PEM")
    signing.add_argument(
        "--service-account-private-key-file",
        type=Path,
        metavar="FILE",
        help="private key, RSA or EC, that signs the tokens of Secrets; the API server must accept it",
    )
    add_controllers(parser)
    add_balancer_pool(parser, "addresses that the controllers give to Services of type LoadBalancer")
    add_cluster_cidr(parser)
    add_leader_election(parser)
    add_endpoint(parser, 10257)
    add_logging(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        access = credentials.load(arguments.kubeconfig, context=arguments.context)
        credentials.ssl_context(access)  # bad credentials are reported before anything runs
        file = arguments.root_ca_file or access.ca.file
        root_ca = Path(file).read_text(encoding="ascii") if file else access.ca.text
        keys = _key_files(arguments).read()
    except (BadKubeconfig, OSError, ValueError) as error:
        raise UserError(str(error)) from error
    election = Election(identity=identity_of(os.uname().nodename, str(uuid.uuid4())))
    work = _work(
        access,
        root_ca,
        arguments.controllers,
        election if arguments.leader_elect == "true" else None,
        endpoint_of(arguments),
        keys,
        arguments.load_balancer_pool,
        pod_networks(arguments.cluster_cidr),
    )
    return run_until_stopped(work, arguments)


def _key_files(arguments: argparse.Namespace) -> KeyFiles:
    certificate, key = arguments.cluster_signing_cert_file, arguments.cluster_signing_key_file
    if (certificate is None) != (key is None):
        raise UserError("--cluster-signing-cert-file and --cluster-signing-key-file must be given together")
    return KeyFiles(
        signing_certificate=certificate, signing_key=key, account_key=arguments.service_account_private_key_file
    )


async def _work(
    access: Access,
    root_ca: str,
    names: frozenset[str],
    election: Election | None,
    endpoint: Endpoint | None,
    keys: Keys,
    balancer_pool: tuple[Network, ...],
    networks: tuple[PodNetwork, ...],
) -> None:
    tune_memory()
    await over_http(access, root_ca, names, election, endpoint, keys, balancer_pool, networks)
