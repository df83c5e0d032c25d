"""`podwire apiserver`: serve the Kubernetes API."""

import argparse
import asyncio
import csv
import ipaddress
from pathlib import Path

from podwire.apiserver.admission.configuration import BadConfiguration, configured
from podwire.apiserver.admission.plugins import AdmissionSettings, BadPlugins, switched_on
from podwire.apiserver.admission.service_addresses import Network
from podwire.apiserver.audit import Rotation
from podwire.apiserver.identity.pki import PkiError
from podwire.apiserver.identity.users import User
from podwire.cli.main import UserError
from podwire.cli.options import (
    add_balancer_pool,
    add_certificate_lifetime,
    add_cluster_cidr,
    add_controllers,
    add_leader_election,
    add_logging,
    address,
    networks,
    pod_networks,
    run_until_stopped,
)
from podwire.cluster.apiserver import Options, running
from podwire.cluster.daemons import tune_memory
from podwire.controllers.registry import API_SERVER_DUTIES
from podwire.protocols.settings import BadConfig
from podwire.store import BadUrl, CannotOpen

DATA_DIR = Path("/var/lib/podwire/apiserver")

MOST_NETWORKS = 2
"""Of service addresses: one of each family."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", type=Path, default=DATA_DIR, help="keys, certificates and the store (default: %(default)s)"
    )
    parser.add_argument(
        "--listen",
        type=address,
        default=("127.0.0.1", 6443),
        metavar="ADDRESS:PORT",
        help="address to serve on; port 0 picks a free one (default: 127.0.0.1:6443)",
    )
    parser.add_argument(
        "--advertise-address",
        type=_ip,
        metavar="IP",
        help="address for pods and other machines; in the serving certificate and in the endpoints of the Service "
        "kubernetes (default: that of --listen, or the machine's)",
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        help="sqlite:// (default, in the data directory), memory:// or etcd://HOST:PORT[,…]",
    )
    parser.add_argument(
        "--write-kubeconfig",
        type=Path,
        metavar="FILE",
        help="path for the admin kubeconfig (default: DATA_DIR/kubeconfig)",
    )
    parser.add_argument(
        "--service-cluster-ip-range", type=_service_networks, default="10.96.0.0/16", metavar="CIDR[,CIDR]",
        help="addresses of services, of one family or of both; the first is the default (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--token-auth-file",
        type=_token_file,
        default={},
        metavar="FILE",
        help='static tokens, one per line: token,user,uid[,"group,group"]',
    )
    _add_audit(parser)
    parser.add_argument(
        "--encryption-provider-config",
        type=Path,
        metavar="FILE",
        help="EncryptionConfiguration: which resources are encrypted in the store, and the keys (default: none)",
    )
    parser.add_argument(
        "--kubelet-certificate-authority",
        type=Path,
        metavar="FILE",
        help="CA of the kubelets' serving certificates (default: accept any)",
    )
    add_certificate_lifetime(parser)
    _add_admission(parser)
    add_controllers(parser)
    add_balancer_pool(parser, "addresses that the controllers give to Services of type LoadBalancer")
    add_cluster_cidr(parser)
    add_leader_election(parser)
    parser.add_argument(
        "--no-controllers",
        action="store_true",
        help="the same as --controllers=none; see `podwire controllers`",
    )
    add_logging(parser)


def _add_admission(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--enable-admission-plugins",
        type=_names,
        default=(),
        metavar="NAME[,…]",
        help="admission plugins to run besides the default ones, by their names in Kubernetes",
    )
    parser.add_argument(
        "--disable-admission-plugins",
        type=_names,
        default=(),
        metavar="NAME[,…]",
        help="admission plugins of the default ones not to run",
    )
    parser.add_argument(
        "--admission-control-config-file",
        type=Path,
        metavar="FILE",
        help="AdmissionConfiguration: defaults and exemptions of PodSecurity, limited resources of ResourceQuota",
    )


def _add_audit(parser: argparse.ArgumentParser) -> None:
    audit = parser.add_argument_group("audit log")
    audit.add_argument(
        "--audit-policy-file", type=Path, metavar="FILE", help="what is recorded: audit.k8s.io/v1 Policy"
    )
    audit.add_argument("--audit-log-path", default="", metavar="FILE", help="the log; - for the standard output")
    audit.add_argument(
        "--audit-log-maxsize", type=_count, default=100, metavar="MB", help="size of a file (default: %(default)s)"
    )
    audit.add_argument(
        "--audit-log-maxbackup", type=_count, default=0, metavar="N", help="old files to keep (default: 0, all)"
    )
    audit.add_argument(
        "--audit-log-maxage", type=_count, default=0, metavar="DAYS", help="age of old files (default: 0, any)"
    )
    audit.add_argument("--audit-webhook-config-file", help=argparse.SUPPRESS)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    host, port = arguments.listen
    if arguments.audit_webhook_config_file:
        raise UserError(
            "--audit-webhook-config-file: webhooks for audit events are not supported; use --audit-log-path"
        )
    if bool(arguments.audit_policy_file) != bool(arguments.audit_log_path):
        raise UserError("--audit-policy-file and --audit-log-path need each other: what is recorded, and where")
    rotation = Rotation(
        megabytes=arguments.audit_log_maxsize or 100,
        backups=arguments.audit_log_maxbackup,
        days=arguments.audit_log_maxage,
    )
    admission = _admission(arguments)
    options = Options(
        data_dir=arguments.data_dir,
        host=host,
        port=port,
        advertise=arguments.advertise_address or "",
        pod_networks=pod_networks(arguments.cluster_cidr),
        store_url=arguments.store,
        kubeconfig=arguments.write_kubeconfig,
        balancer_pool=arguments.load_balancer_pool,
        service_networks=arguments.service_cluster_ip_range,
        controllers=API_SERVER_DUTIES if arguments.no_controllers else arguments.controllers,
        leader_elect=arguments.leader_elect == "true",
        static_tokens=arguments.token_auth_file,
        audit_policy=arguments.audit_policy_file,
        audit_log=arguments.audit_log_path,
        audit_rotation=rotation,
        encryption_config=arguments.encryption_provider_config,
        kubelet_authority=arguments.kubelet_certificate_authority,
        certificate_lifetime=arguments.certificate_lifetime,
        admission=admission,
    )
    try:
        return run_until_stopped(_serve(options), arguments)
    except (OSError, PkiError, BadUrl, BadConfig, CannotOpen) as error:
        raise UserError(str(error)) from error


def _ip(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _admission(arguments: argparse.Namespace) -> AdmissionSettings:
    """Returns the settings of the admission plugins; raises UserError for unknown plugins and bad files."""
    settings = AdmissionSettings(enable=arguments.enable_admission_plugins, disable=arguments.disable_admission_plugins)
    path: Path | None = arguments.admission_control_config_file
    try:
        switched_on(settings.enable, settings.disable)
        if path is not None:
            settings = configured(path.read_bytes(), lambda name: (path.parent / name).read_bytes(), settings)
    except BadPlugins as error:
        raise UserError(str(error)) from error
    except (OSError, BadConfiguration) as error:
        raise UserError(f"{path}: {error}") from error
    return settings


def _service_networks(text: str) -> tuple[Network, ...]:
    found = networks(text)
    if len(found) > MOST_NETWORKS:
        raise argparse.ArgumentTypeError(f"{text!r} must not contain more than two entries")
    if len({network.version for network in found}) != len(found):
        raise argparse.ArgumentTypeError(f"{text!r}: the two networks must be of different IP family")
    return found


def _token_file(path: str) -> dict[str, User]:
    """Returns the users of a file of static tokens; an invalid line is named by its number."""
    users = {}
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.reader(file), start=1):
                if not row:
                    continue
                if len(row) < 3 or not row[0].strip() or not row[1].strip():
                    raise argparse.ArgumentTypeError(f"{path}: line {number}: expected token,user,uid[,groups]")
                groups = [part.strip() for part in row[3].split(",")] if len(row) > 3 else []
                users[row[0].strip()] = User(row[1].strip(), row[2].strip(), tuple(filter(None, groups)))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror}") from error
    return users


async def _serve(options: Options) -> None:
    async with running(options):
        tune_memory()
        await asyncio.Event().wait()
